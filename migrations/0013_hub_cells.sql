-- What the annotation fedq.dev/cells of each hub queue said when it was last read: for the day somebody replaces a queue
-- from a manifest that does not have it.
CREATE TABLE hub_cells (
    queue TEXT NOT NULL PRIMARY KEY,
    uid   TEXT NOT NULL,
    cells TEXT NOT NULL CHECK (json_valid(cells))
) STRICT, WITHOUT ROWID;
