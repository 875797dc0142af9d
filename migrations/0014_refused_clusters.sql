-- Clusters that sent more than fedqd keeps of one: a start does not let them do it again. Whoever changes what joins the
-- cluster, or sets the bounds higher, has it tried anew.
CREATE TABLE refused_clusters (
    cluster     TEXT PRIMARY KEY REFERENCES clusters (name) ON DELETE CASCADE,
    reason      TEXT NOT NULL,
    joined_with TEXT NOT NULL,     -- hash of what it was joined with
    objects     INTEGER NOT NULL,  -- the bounds at the time
    bytes       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
