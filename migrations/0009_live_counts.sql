-- How many tasks a person has that are not over is asked at each that they hand in: it is kept, for counting them would
-- take longer than accepting one.
DROP INDEX tasks_live_by_owner;

CREATE TABLE task_owners (
    owner TEXT PRIMARY KEY,
    live  INTEGER NOT NULL CHECK (0 < live)
) STRICT, WITHOUT ROWID;
INSERT INTO task_owners SELECT owner, count(*) FROM tasks WHERE over = 0 GROUP BY owner;

CREATE TRIGGER tasks_count_new AFTER INSERT ON tasks WHEN NEW.over = 0 BEGIN
    INSERT INTO task_owners VALUES (NEW.owner, 1) ON CONFLICT (owner) DO UPDATE SET live = live + 1;
END;
CREATE TRIGGER tasks_count_over AFTER UPDATE OF over ON tasks WHEN OLD.over = 0 AND NEW.over = 1 BEGIN
    DELETE FROM task_owners WHERE owner = OLD.owner AND live = 1;
    UPDATE task_owners SET live = live - 1 WHERE owner = OLD.owner;
END;
CREATE TRIGGER tasks_count_gone AFTER DELETE ON tasks WHEN OLD.over = 0 BEGIN
    DELETE FROM task_owners WHERE owner = OLD.owner AND live = 1;
    UPDATE task_owners SET live = live - 1 WHERE owner = OLD.owner;
END;
