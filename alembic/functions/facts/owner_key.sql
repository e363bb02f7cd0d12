-- Returns whose belief a fact or note is: the agent's under agent_private, the garden's, and the user's. Agents and gardens
-- have no spaces in their ids.
CREATE OR REPLACE FUNCTION owner_key(p_scope text, p_agent text, p_garden uuid, p_user text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT concat_ws(' ', CASE p_scope WHEN 'agent_private' THEN p_agent END, p_garden, 'user:' || nullif(p_user, ''))
$$;
