"""How good recall is: public questions with known answers, asked through HTTP as anybody would."""
