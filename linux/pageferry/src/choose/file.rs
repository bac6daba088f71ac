//! The file of a host's costs: `$PAGEFERRY_HOST`, or `pageferry/host.toml` in the user's folder of configurations.

use super::costs::HostCosts;
use std::path::{Path, PathBuf};

/// Where the file is, if the environment says so.
pub fn path() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = var("PAGEFERRY_HOST") {
        return Some(path.into());
    }
    let folder = var("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| var("HOME").map(|home| Path::new(&home).join(".config")));
    folder.map(|folder| folder.join("pageferry/host.toml"))
}

/// What choices are made by, and why a file that is there was not used.
pub(super) fn load() -> (HostCosts, Option<String>) {
    let Some(path) = path() else { return (HostCosts::built_in(), None) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (HostCosts::built_in(), None),
        Err(error) => return (HostCosts::built_in(), Some(format!("{}: {error}", path.display()))),
    };
    match of_this_host(&text) {
        Ok(costs) => (costs, None),
        Err(why) => (HostCosts::built_in(), Some(format!("{} is not used: {why}", path.display()))),
    }
}

/// The costs in a file's text, if they are of this host.
pub(super) fn of_this_host(text: &str) -> Result<HostCosts, String> {
    let costs: HostCosts = toml::from_str(text).map_err(|error| error.to_string())?;
    let (cpu, kernel) = (cpu_name(), kernel_release());
    if costs.host.cpu != cpu {
        return Err(format!(
            "it is of the CPU `{}`, and this is `{cpu}`: run `pageferry host calibrate`",
            costs.host.cpu
        ));
    }
    if costs.host.kernel != kernel {
        let other = &costs.host.kernel;
        return Err(format!(
            "it is of the kernel {other}, and this is {kernel}: run `pageferry host calibrate`"
        ));
    }
    let numbers = costs.messages.iter().flat_map(|message| [message.copy, message.loan, message.donate]);
    let primitives = costs.primitives.iter().map(|primitive| primitive.time);
    for nanos in numbers.chain(primitives).chain([costs.written_page, costs.spin]) {
        if ![nanos.median, nanos.low, nanos.high].iter().all(|value| value.is_finite() && *value >= 0.0) {
            return Err("a time is negative or no number".to_owned());
        }
    }
    Ok(costs)
}

/// The CPU's model name, as /proc/cpuinfo has it; its implementer and part where it has none.
pub fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let arm = || Some(format!("{} {}", field("CPU implementer")?, field("CPU part")?));
    field("model name").or_else(arm).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The kernel's release, as `uname -r` has it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
