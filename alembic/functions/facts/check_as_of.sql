-- Returns true when a project's retention floor allows reads at that time; raises PA001 with the floor in the error's
-- detail otherwise.
-- A condition of every read at a past time, so that the check costs no round trip of its own.
CREATE OR REPLACE FUNCTION check_as_of(p_tenant text, p_project text, p_as_of timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_floor timestamptz;
BEGIN
    SELECT (p.settings ->> 'as_of_floor')::timestamptz INTO v_floor FROM projects p
    WHERE p.tenant_id = p_tenant AND p.project_id = p_project;
    IF p_as_of < v_floor THEN
        RAISE EXCEPTION 'before the retention floor' USING ERRCODE = 'PA001', DETAIL = v_floor;
    END IF;
    RETURN true;
END
$$;
