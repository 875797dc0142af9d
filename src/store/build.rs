//! `sqlx::migrate!` reads the folder at compile time, and cargo does not know that by itself.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
