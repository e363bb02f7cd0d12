-- A text in the form in which names are searched: its letters as search folds them (see fold_letters), in lower case.
-- Texts and names must both be folded, because Python and PostgreSQL do not lower all letters alike.
CREATE OR REPLACE FUNCTION fold_name(p_text text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        -- Without a locale, which would take ten times as long.
        RETURN lower(p_text COLLATE "C");
    END IF;
    -- Lower case twice: compatibility forms without a lower case of their own have capitals once they are folded.
    RETURN replace(lower(fold_letters(lower(p_text))), 'ς', 'σ');
END
$$;
