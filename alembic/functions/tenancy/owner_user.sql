-- Returns the user that owns what is written in this scope; '' is all users.
CREATE OR REPLACE FUNCTION owner_user()
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(nullif(current_setting('app.user_id', true), '*'), '')
$$;
