-- Files that people send for their tasks, as archives known by the digest of their bytes.

CREATE TABLE uploads (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    owner   TEXT NOT NULL,                                    -- who sent it, and alone may name it
    digest  TEXT NOT NULL,
    bytes   INTEGER NOT NULL CHECK (0 < bytes),
    is_file INTEGER NOT NULL CHECK (is_file IN (0, 1)),       -- it stands for one file, not a folder
    used_ms INTEGER NOT NULL,                                 -- when it was last sent, asked for or named
    UNIQUE (owner, digest)
) STRICT;

-- Apart, since a row is written anew as a whole whenever a part of it changes.
CREATE TABLE upload_data (
    upload INTEGER PRIMARY KEY REFERENCES uploads (seq) ON DELETE CASCADE,
    data   BLOB NOT NULL
) STRICT;

-- What each task brings along: it stays as long as the task is not over.
CREATE TABLE task_uploads (
    task   INTEGER NOT NULL REFERENCES tasks (seq) ON DELETE CASCADE,
    upload INTEGER NOT NULL REFERENCES uploads (seq) ON DELETE CASCADE,
    PRIMARY KEY (task, upload)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_uploads_by_upload ON task_uploads (upload);
