-- Returns whether a caller may see a row of this scope, agent, garden and user: the rule of the policies, for functions
-- of the owner, to which policies don't apply. Plain SQL without settings, so that it is inlined.
CREATE OR REPLACE FUNCTION is_visible(
    p_scope text, p_row_agent text, p_garden uuid, p_row_user text, p_agent text, p_gardens uuid[], p_user text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT (p_scope <> 'agent_private' OR p_row_agent = p_agent) AND (p_garden IS NULL OR p_garden = ANY (p_gardens))
       AND (p_row_user = '' OR p_row_user = p_user OR p_user = '*')
$$;
