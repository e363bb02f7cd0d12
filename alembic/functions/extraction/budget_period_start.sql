-- Returns the first day of the current budget period in UTC: of a day, a month, or of all time ('total').
CREATE OR REPLACE FUNCTION budget_period_start(p_period text)
RETURNS date
LANGUAGE sql STABLE
AS $$
    SELECT CASE coalesce(p_period, 'month') WHEN 'total' THEN '-infinity'::date
           ELSE date_trunc(coalesce(p_period, 'month'), statement_timestamp() AT TIME ZONE 'UTC')::date END
$$;
