-- The letters of scripts without spaces, for a class of a regular expression: Thai, Lao, Burmese, Khmer; kana, Chinese
-- characters and Hangul.
CREATE OR REPLACE FUNCTION unspaced_letters()
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT '\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff'
           '\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff'
$$;
