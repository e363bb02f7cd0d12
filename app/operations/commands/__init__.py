"""Commands by what they are about. What a command needs is imported when it runs, so that help is quick."""
