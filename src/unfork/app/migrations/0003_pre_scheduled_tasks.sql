-- What runs by the clock: one row a task and moment, leased like any other work.
CREATE TABLE {app}.scheduled_tasks (
    task text NOT NULL,
    -- The moment that its cron named; of the first row, when the task was first seen.
    moment timestamptz NOT NULL,
    status text NOT NULL CHECK (status IN ('ACTIVE', 'COMPLETED', 'FAILED')),
    -- How often it failed.
    attempt integer NOT NULL DEFAULT 0,
    -- Whoever ends it must have this one; every claim draws another.
    token bigint NOT NULL DEFAULT nextval('{app}.lease_tokens'),
    leased_by text NOT NULL,
    lease_expires_at timestamptz,
    -- A failed one is not claimed again before this.
    not_before timestamptz,
    -- What it found or did, as its command tells it.
    result jsonb,
    error text,
    started_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (task, moment),
    CHECK ((status = 'ACTIVE') = (lease_expires_at IS NOT NULL))
);
CREATE UNIQUE INDEX scheduled_tasks_one_active
    ON {app}.scheduled_tasks (task) WHERE status = 'ACTIVE';
