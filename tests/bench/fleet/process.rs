//! What the kernel says of a process.

use std::fs;

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

/// Of the kernel's accounting.
const TICKS_A_SECOND: f64 = 100.0;

impl Process {
    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).context(path)
    }

    /// Of all its threads, also of those that ended.
    pub fn cpu_seconds(self) -> Result<f64> {
        let text = self.read("stat")?;
        // The name in brackets may hold anything.
        let fields = text.rsplit_once(") ").context("a stat file names the program")?.1;
        let mut ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
        let (user, system) = (ticks.next().context("utime")??, ticks.next().context("stime")??);
        Ok((user + system) / TICKS_A_SECOND)
    }

    pub fn rss(self) -> Result<f64> {
        self.status("VmRSS:")
    }

    /// Since the last call of [`Self::forget_peak`].
    pub fn peak(self) -> Result<f64> {
        self.status("VmHWM:")
    }

    pub fn forget_peak(self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.0);
        fs::write(&path, "5").context(path)
    }

    /// Bytes.
    fn status(self, field: &str) -> Result<f64> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)).context("a field of status")?;
        let kilobytes: f64 = line.split_whitespace().next().context("a number")?.parse()?;
        Ok(kilobytes * 1024.0)
    }

    pub fn open_files(self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.0);
        Ok(fs::read_dir(&path).context(path)?.count())
    }
}
