-- Returns a text with the matches of these patterns, then of the tenant's own, replaced by [REDACTED], and how many
-- there were. A redacted part is one character to later patterns, so that they match around it but not inside, and the
-- text does not grow. Empty matches redact nothing. The tenant's own patterns see only the first p_characters, since
-- they may be slow; of a cut text the last quarter is left out, since half a secret would not match. Runs with the
-- rights of its caller.
CREATE OR REPLACE FUNCTION redact_text(
    p_text text, p_patterns text[], p_own text[] DEFAULT '{}', p_characters int DEFAULT NULL, OUT words text,
    OUT redactions int)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    -- Noncharacters, which no text contains: a redacted part, and the start and end of a match.
    c_hidden CONSTANT text := E'\uFDD0';
    c_begin CONSTANT text := E'\uFDD1';
    c_end CONSTANT text := E'\uFDD2';
    v_patterns CONSTANT text[] := p_patterns || p_own;
    v_cut boolean := false;
    v_marked text;
BEGIN
    words := replace(translate(p_text, c_hidden || c_begin || c_end, ''), '[REDACTED]', c_hidden);
    redactions := 0;
    FOR i IN 1 .. cardinality(v_patterns) LOOP
        IF i = cardinality(p_patterns) + 1 AND length(words) > p_characters THEN
            v_cut := true;
            words := left(words, p_characters);
        END IF;
        -- One search: counting marks is cheaper than matching again.
        v_marked := replace(regexp_replace(words, v_patterns[i], c_begin || '\&' || c_end, 'gi'), c_begin || c_end, '');
        IF v_marked <> words THEN
            v_marked := regexp_replace(v_marked, c_begin || '(' || c_hidden || '+)' || c_end, '\1', 'g');
            redactions := redactions + length(v_marked) - length(replace(v_marked, c_end, ''));
            words := regexp_replace(v_marked, c_begin || '[^' || c_end || ']*' || c_end, c_hidden, 'g');
        END IF;
    END LOOP;
    IF v_cut THEN
        -- Before marks are written out: each character stands for one of the text at least: a quarter or more.
        words := left(words, greatest(0, length(words) - p_characters / 4)) || c_hidden;
    END IF;
    words := regexp_replace(words, c_hidden || '+', '[REDACTED]', 'g');
END
$$;
