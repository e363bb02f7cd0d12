-- Returns which character of a text gives the character at p_position of its folded form (see fold_name). Folding may
-- make a text shorter or longer, so the place is searched by halves.
CREATE OR REPLACE FUNCTION unfolded_position(p_text text, p_position int)
RETURNS int
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    v_low int := 1;
    v_high int := length(p_text);
    v_middle int;
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN p_position;
    END IF;
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        IF length(fold_name(left(p_text, v_middle))) >= p_position THEN
            v_high := v_middle;
        ELSE
            v_low := v_middle + 1;
        END IF;
    END LOOP;
    RETURN v_low;
END
$$;
