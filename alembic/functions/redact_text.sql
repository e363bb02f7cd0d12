-- A text without what matches these patterns, and how often something did. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION redact_text(p_text text, p_patterns text[], OUT words text, OUT redactions int)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_pattern text;
    v_found int;
BEGIN
    words := p_text;
    redactions := 0;
    FOREACH v_pattern IN ARRAY p_patterns LOOP
        v_found := regexp_count(words, v_pattern, 1, 'i');
        IF v_found > 0 THEN
            words := regexp_replace(words, v_pattern, '[REDACTED]', 'gi');
            redactions := redactions + v_found;
        END IF;
    END LOOP;
END
$$;
