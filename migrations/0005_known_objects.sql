-- What each cluster's objects were when fedqd stopped, for the next start to go on from. Nothing is decided by
-- it: what the cluster then sends counts.
CREATE TABLE known_objects (
    cluster TEXT PRIMARY KEY REFERENCES clusters (name) ON DELETE CASCADE,
    build   TEXT NOT NULL,             -- of the fedqd that wrote it: another may read more of an object
    objects BLOB NOT NULL
) STRICT, WITHOUT ROWID;
