-- How much a person's tasks that are not over take: each of them is in memory until it is over.
ALTER TABLE task_owners ADD COLUMN live_bytes INTEGER NOT NULL DEFAULT 0 CHECK (0 <= live_bytes);
UPDATE task_owners SET live_bytes =
    (SELECT sum(octet_length(spec)) FROM tasks WHERE tasks.owner = task_owners.owner AND over = 0);

DROP TRIGGER tasks_count_new;
DROP TRIGGER tasks_count_over;
DROP TRIGGER tasks_count_gone;
CREATE TRIGGER tasks_count_new AFTER INSERT ON tasks WHEN NEW.over = 0 BEGIN
    INSERT INTO task_owners (owner, live, live_bytes) VALUES (NEW.owner, 1, octet_length(NEW.spec))
    ON CONFLICT (owner) DO UPDATE SET live = live + 1, live_bytes = live_bytes + excluded.live_bytes;
END;
CREATE TRIGGER tasks_count_over AFTER UPDATE OF over ON tasks WHEN OLD.over = 0 AND NEW.over = 1 BEGIN
    DELETE FROM task_owners WHERE owner = OLD.owner AND live = 1;
    UPDATE task_owners SET live = live - 1, live_bytes = live_bytes - octet_length(OLD.spec)
    WHERE owner = OLD.owner;
END;
CREATE TRIGGER tasks_count_gone AFTER DELETE ON tasks WHEN OLD.over = 0 BEGIN
    DELETE FROM task_owners WHERE owner = OLD.owner AND live = 1;
    UPDATE task_owners SET live = live - 1, live_bytes = live_bytes - octet_length(OLD.spec)
    WHERE owner = OLD.owner;
END;
