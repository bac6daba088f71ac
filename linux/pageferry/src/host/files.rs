//! What the files of /proc and /sys say.
//!
//! Every answer is an `Option`: a file that is not there, cannot be read, or says something else, gives `None`.

use std::path::{Path, PathBuf};

/// Files below a folder.
pub(super) struct Files {
    root: PathBuf,
}

impl Files {
    pub(super) fn below(root: &Path) -> Files {
        Files { root: root.to_owned() }
    }

    /// A file of one setting.
    pub(super) fn setting(&self, file: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn number(&self, file: impl AsRef<Path>) -> Option<u64> {
        self.setting(file)?.parse().ok()
    }

    /// Of a file of words, the one in brackets.
    pub(super) fn chosen(&self, file: impl AsRef<Path>) -> Option<String> {
        let text = self.setting(file)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// A field of /proc/self/status.
    pub(super) fn status(&self, field: &str) -> Option<String> {
        let text = self.setting("proc/self/status")?;
        let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned());
        text.lines().find_map(value)
    }

    /// A soft limit of this process; `Some(None)`: there is none.
    pub(super) fn limit(&self, name: &str) -> Option<Option<u64>> {
        let text = self.setting("proc/self/limits")?;
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        match rest.split_whitespace().next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        }
    }

    /// The control group of this process in a hierarchy: where its files are, from the root of the hierarchy on.
    /// An empty name is the unified hierarchy.
    fn cgroup(&self, controller: &str) -> Option<PathBuf> {
        let text = self.setting("proc/self/cgroup")?;
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let found = controllers.split(',').any(|of| of == controller);
            found.then(|| PathBuf::from(path.trim_start_matches('/')))
        })
    }

    /// The folders of this process's group and of those that hold it, where limits of any count.
    fn cgroup_folders(&self, v1: &str, controller: &str) -> Vec<PathBuf> {
        let base = PathBuf::from("sys/fs/cgroup");
        let roots = [(base.clone(), self.cgroup("")), (base.join(v1), self.cgroup(controller))];
        let mut folders = Vec::new();
        for (root, path) in roots {
            // In a container the path may be one of the host's, and the files those of the root.
            let path = path.unwrap_or_default();
            folders.extend(path.ancestors().map(|path| root.join(path)));
        }
        folders
    }

    /// The tightest limit of memory of this process's control groups, and the bytes that are used of it.
    pub(super) fn cgroup_memory(&self) -> Option<(u64, u64)> {
        // What version 1 says where there is no limit.
        const NONE: u64 = 1 << 60;
        let of = |folder: PathBuf| {
            let v2 = self.number(folder.join("memory.max"));
            let v1 = || self.number(folder.join("memory.limit_in_bytes"));
            let limit = v2.or_else(v1).filter(|&limit| limit < NONE)?;
            let used = self.number(folder.join("memory.current"));
            let used = used.or_else(|| self.number(folder.join("memory.usage_in_bytes")));
            Some((limit, used.unwrap_or(0)))
        };
        self.cgroup_folders("memory", "memory").into_iter().filter_map(of).min()
    }

    /// CPUs that this process's control groups allow at most.
    pub(super) fn cpu_quota(&self) -> Option<f64> {
        let of = |folder: PathBuf| {
            let (quota, period) = match self.setting(folder.join("cpu.max")) {
                Some(text) => {
                    let (quota, period) = text.split_once(' ')?;
                    (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
                }
                None => {
                    let quota = self.number(folder.join("cpu.cfs_quota_us"))?;
                    (quota as f64, self.number(folder.join("cpu.cfs_period_us"))? as f64)
                }
            };
            (quota > 0.0 && period > 0.0).then_some(quota / period)
        };
        self.cgroup_folders("cpu", "cpu").into_iter().filter_map(of).min_by(f64::total_cmp)
    }

    /// The deepest idle state of the first CPU that is not switched off, and the microseconds that leaving it takes.
    pub(super) fn deepest_idle(&self) -> Option<(String, u64)> {
        let states = self.root.join("sys/devices/system/cpu/cpu0/cpuidle");
        let of = |state: std::fs::DirEntry| {
            let state = state.path();
            let off = self.number(state.join("disable")).is_some_and(|off| off != 0);
            let latency = self.number(state.join("latency"))?;
            let name = self.setting(state.join("name"))?;
            (!off).then_some((latency, name))
        };
        let deepest = std::fs::read_dir(states).ok()?.flatten().filter_map(of).max()?;
        Some((deepest.1, deepest.0))
    }
}
