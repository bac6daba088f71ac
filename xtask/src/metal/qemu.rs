//! One run of an image under QEMU: what it said, and with which code it ended.

use super::image::Image;
use core::fmt;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A machine that QEMU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Machine {
    /// A PC with PCI Express.
    Q35,
    /// An older PC.
    Pc,
    /// What a virtual machine needs, and no more.
    Microvm,
}

impl Machine {
    /// By its name.
    pub(super) fn named(name: &str) -> Option<Machine> {
        [Machine::Q35, Machine::Pc, Machine::Microvm].into_iter().find(|machine| machine.name() == name)
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Machine::Q35 => "q35",
            Machine::Pc => "pc",
            Machine::Microvm => "microvm",
        }
    }
}

/// What QEMU is to run.
pub(super) struct Qemu {
    /// The machine.
    pub(super) machine: Machine,
    /// Its CPUs.
    pub(super) cpus: usize,
    /// Its memory.
    pub(super) memory_mb: u32,
    line: String,
    more: Vec<String>,
}

/// How a run ended.
pub(super) struct End {
    /// What was said on the serial port.
    pub(super) said: String,
    /// The code.
    pub(super) code: u8,
}

/// A run takes a second; on a busy host, many.
const PATIENCE: Duration = Duration::from_secs(240);

impl Qemu {
    /// A machine with 512 MB.
    pub(super) fn new(machine: Machine, cpus: usize) -> Qemu {
        Qemu { machine, cpus, memory_mb: 512, line: String::new(), more: Vec::new() }
    }

    /// The same with another command line for the image.
    pub(super) fn with_line(self, line: &str) -> Qemu {
        Qemu { line: line.into(), ..self }
    }

    /// The same with other memory.
    pub(super) fn with_memory(self, memory_mb: u32) -> Qemu {
        Qemu { memory_mb, ..self }
    }

    /// The same with further arguments of QEMU.
    pub(super) fn with(mut self, more: &[&str]) -> Qemu {
        self.more.extend(more.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Runs an image until it ends.
    pub(super) fn run(&self, image: &Image) -> Result<End, String> {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-machine", self.machine.name(), "-smp", &self.cpus.to_string()]);
        qemu.args(["-m", &self.memory_mb.to_string(), "-append", &self.line]);
        qemu.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nodefaults"]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel"]).arg(&image.path);
        qemu.args(&self.more).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = qemu.spawn().map_err(|e| format!("qemu-system-x86_64 does not run: {e}"))?;
        let mut pipe = child.stdout.take().expect("it was asked for");
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = pipe.read_to_end(&mut said);
            String::from_utf8_lossy(&said).into_owned()
        });
        let began = Instant::now();
        let status = loop {
            match child.try_wait().map_err(|e| format!("QEMU cannot be waited for: {e}"))? {
                Some(status) => break Some(status),
                None if began.elapsed() > PATIENCE => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let said = reader.join().unwrap_or_default().replace("\r\n", "\n");
        let Some(status) = status else {
            return Err(format!("{said}the machine had not ended after {} s", PATIENCE.as_secs()));
        };
        // The device makes an odd status of a code. Any other is QEMU's own, which also ends when a machine resets.
        match status.code() {
            Some(odd) if odd & 1 == 1 => Ok(End { said, code: (odd >> 1) as u8 }),
            _ => Err(format!("{said}the machine ended without a code ({status})")),
        }
    }
}

impl fmt::Display for Qemu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Qemu { machine, cpus, memory_mb, line, more } = self;
        write!(f, "{}, {cpus} CPUs, {memory_mb} MB, `{line}`", machine.name())?;
        more.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}
