-- What people asked for, what was decided, and who did what.

CREATE TABLE claims (
    name       TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    who        TEXT NOT NULL,
    spec       TEXT NOT NULL CHECK (json_valid(spec)),
    at_ms      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE claim_history (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms      INTEGER NOT NULL,
    name       TEXT NOT NULL,
    generation INTEGER NOT NULL,
    who        TEXT NOT NULL,
    old_spec   TEXT CHECK (json_valid(old_spec)),  -- NULL: the claim was created
    new_spec   TEXT CHECK (json_valid(new_spec))   -- NULL: the claim was deleted
) STRICT;
CREATE INDEX claim_history_by_name ON claim_history (name, id);
CREATE INDEX claim_history_by_age ON claim_history (at_ms);

-- The text of each cluster's claim that its quota rests on: an edit that is not valid, and a second claim, are
-- in `claims` too, and must not come into force because fedqd was started again.
CREATE TABLE claims_in_force (
    cluster    TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    spec       TEXT NOT NULL CHECK (json_valid(spec)),
    uid        TEXT,                   -- with the generation: as of which that text was in force, where it is known
    generation INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE plans (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms   INTEGER NOT NULL,
    cluster TEXT NOT NULL,
    cause   TEXT NOT NULL CHECK (json_valid(cause)),
    report  TEXT NOT NULL CHECK (json_valid(report))
) STRICT;
CREATE INDEX plans_by_cluster ON plans (cluster, id);
CREATE INDEX plans_by_age ON plans (at_ms);

-- What each cluster contributes to each hub cell: after a restart, an unreachable cluster keeps it.
CREATE TABLE quota_cells (
    cluster      TEXT NOT NULL REFERENCES clusters (name) ON DELETE CASCADE,
    queue        TEXT NOT NULL,
    flavor       TEXT NOT NULL,
    resource     TEXT NOT NULL,
    effective    INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL,
    term         INTEGER NOT NULL,
    PRIMARY KEY (cluster, queue, flavor, resource)
) STRICT, WITHOUT ROWID;

-- What the annotation fedq.dev/cells of each hub queue said when it was last read: for the day somebody replaces a queue
-- from a manifest that does not have it.
CREATE TABLE hub_cells (
    queue TEXT NOT NULL PRIMARY KEY,
    uid   TEXT NOT NULL,
    cells TEXT NOT NULL CHECK (json_valid(cells))
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms   INTEGER NOT NULL,
    who     TEXT NOT NULL,
    verb    TEXT NOT NULL,
    object  TEXT NOT NULL,
    detail  TEXT CHECK (json_valid(detail)),
    outcome TEXT NOT NULL,
    -- Who acted as `who`, where that was somebody else.
    through TEXT,
    -- Nothing was done. Counted apart, so that refusals push nothing out that was.
    refused INTEGER NOT NULL CHECK (refused IN (0, 1))
) STRICT;
CREATE INDEX audit_by_age ON audit (at_ms);
