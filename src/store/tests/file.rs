//! The file itself: a second daemon, a newer or a damaged one, a full disk, and who may read it.

use super::*;

#[tokio::test]
async fn a_second_daemon_on_the_same_file_is_refused_with_the_holder() {
    let bed = Bed::new().await;
    let link = bed.folder.path().join("link.db");
    std::os::unix::fs::symlink(bed.path(), &link).unwrap();
    for path in [bed.path(), link] {
        let error = Store::open(&path).await.map(|_| ()).unwrap_err();
        let holder = format!("is in use by another fedqd (process {})", std::process::id());
        assert!(error.to_string().ends_with(&holder), "{error}");
        assert!(matches!(rebuild(&path), Err(StoreError::InUse { .. })));
    }
    bed.store.close().await;
    Store::open(&bed.path()).await.expect("free again");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let bed = Bed::new().await;
    bed.store.close().await;
    let path = bed.path();
    let mut connection = SqliteConnection::connect_with(&open::options(&path)).await.unwrap();
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', 1, x'00', 1)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    let error = Store::open(&path).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("this database was written by a newer fedqd"), "{error}");
    assert!(error.to_string().contains("--rebuild-store"), "{error}");
    assert!(matches!(error, StoreError::Newer { found: 9999, .. }));
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_rebuilding_moves_it_aside() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("fedq.db");
    fs::write(&path, "this is not a database, and longer than the header of one would be\n".repeat(90))
        .unwrap();
    let error = Store::open(&path).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{}", told(&error));
    assert!(error.to_string().contains("run `fedqd --rebuild-store`"), "{error}");
    let aside = rebuild(&path).unwrap().expect("there was a file");
    assert!(fs::read_to_string(aside).unwrap().starts_with("this is not a database"));
    Store::open(&path).await.expect("a new one").close().await;
    assert!(rebuild(&path).unwrap().is_some());
    assert_eq!(rebuild(&path).unwrap(), None, "nothing left to move");
}

#[tokio::test]
async fn a_page_overwritten_in_the_middle_is_found_at_the_start() {
    let (bed, name) = Bed::with_cluster().await;
    let nodes: Vec<_> = (0..2000).map(|number| node(&format!("node-{number}"))).collect();
    commit(&bed.store, &name, &nodes, None).await.unwrap();
    bed.store.close().await;
    let path = bed.path();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let error = Store::open(&path).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{}", told(&error));
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for path in [folder.path().join("file/fedq.db"), PathBuf::from("/proc/fedq/fedq.db")] {
        let error = Store::open(&path).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, StoreError::Folder { .. }), "{}", told(&error));
        assert!(error.to_string().contains(path.parent().unwrap().to_str().unwrap()), "{error}");
    }
    let error = Store::open(Path::new("/proc/fedq.db")).await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "cannot write the file `/proc/fedq.db.lock` for the database");
    let error = Store::open(folder.path()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, StoreError::File { .. }), "a folder is no database: {}", told(&error));
}

#[tokio::test]
async fn a_full_disk_is_told_apart_and_the_store_recovers() {
    let (bed, name) = Bed::with_cluster().await;
    bed.store.execute("PRAGMA max_page_count = 40").await;
    let big = NodeChange::Put { name: "big".into(), row: vec![1; 1 << 20] };
    let writes = [std::slice::from_ref(&big), &[node("small")]];
    let outcomes = join_all(writes.map(|changes| commit(&bed.store, &name, changes, None))).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{}", told(error));
    assert_eq!(error.to_string(), "cannot record nodes: the disk that holds the database is full");
    assert!(error.is_transient());
    let kept = usize::from(outcomes[1].is_ok());
    assert_eq!(bed.store.load_nodes(&name).await.unwrap().0.len(), kept, "told as it is");

    bed.store.execute("PRAGMA max_page_count = 1000000").await;
    commit(&bed.store, &name, &[big, node("small")], None).await.expect("there is room again");
    assert_eq!(bed.store.load_nodes(&name).await.unwrap().0.len(), 2);
}

#[tokio::test]
async fn the_read_pool_cannot_write() {
    let bed = Bed::new().await;
    let error = sqlx::query("DELETE FROM clusters").execute(bed.store.readers()).await.unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

#[tokio::test]
async fn a_closed_store_says_so_and_leaves_no_log_behind() {
    let bed = Bed::new().await;
    bed.store.put_cluster(&cluster_row("worker-1")).await.unwrap();
    bed.store.close().await;
    bed.store.close().await;
    assert!(!bed.path().with_file_name("fedq.db-wal").exists());
    let error = bed.store.put_cluster(&cluster_row("worker-2")).await.unwrap_err();
    assert!(matches!(error, StoreError::Closed { .. }), "{error}");
    assert!(bed.store.clusters(&PageRequest::default()).await.is_err());
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::new().await;
    bed.store.put_cluster(&cluster_row("worker-1")).await.unwrap();
    for (path, mode) in [
        (bed.path().parent().unwrap().to_owned(), 0o700),
        (bed.path(), 0o600),
        (bed.path().with_file_name("fedq.db-wal"), 0o600),
    ] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
}
