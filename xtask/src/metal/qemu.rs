//! One run of an image under QEMU: what it said, and with which code it ended.

use super::image::Image;
use core::fmt;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
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
    /// The image's command line.
    pub(super) line: String,
    more: Vec<String>,
    /// The USB stick that it boots from, if that is not QEMU's own loader.
    stick: Option<PathBuf>,
    /// What is typed on the serial port, a line at each prompt.
    typed: Vec<String>,
}

/// What the shell says when it waits for a line.
const PROMPT: &[u8] = b"\n> ";

/// How a run ended.
pub(super) struct End {
    /// What was said on the serial port.
    pub(super) said: String,
    /// The code.
    pub(super) code: u8,
}

/// A run takes a second; on a busy host, many.
const PATIENCE: Duration = Duration::from_secs(300);

impl Qemu {
    /// A machine with 512 MB.
    pub(super) fn new(machine: Machine, cpus: usize) -> Qemu {
        let (line, more, typed) = (String::new(), Vec::new(), Vec::new());
        Qemu { machine, cpus, memory_mb: 512, line, more, stick: None, typed }
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

    /// The same with the programs of an archive, of which this one is run.
    pub(super) fn with_programs(self, archive: &Path, program: &str) -> Qemu {
        let line = format!("{} program={program}", self.line);
        self.with_line(line.trim()).with(&["-cpu", "max", "-initrd", &archive.display().to_string()])
    }

    /// The same, booting from a USB stick, as a PC does. The line is the stick's.
    pub(super) fn with_stick(self, stick: &Path) -> Qemu {
        Qemu { stick: Some(stick.into()), ..self }
    }

    /// The same with lines that are typed, each when the shell waits for one.
    pub(super) fn with_typed(self, lines: &[&str]) -> Qemu {
        Qemu { typed: lines.iter().map(|&line| line.to_owned()).collect(), ..self }
    }

    fn command(&self, image: &Image) -> Command {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-machine", self.machine.name(), "-smp", &self.cpus.to_string()]);
        qemu.args(["-m", &self.memory_mb.to_string()]);
        qemu.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nodefaults"]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        match &self.stick {
            None => qemu.args(["-append", &self.line, "-kernel"]).arg(&image.path),
            Some(stick) => {
                let drive = format!("if=none,id=stick,format=raw,readonly=on,file={}", stick.display());
                qemu.args(["-drive", &drive, "-device", "qemu-xhci"]);
                qemu.args(["-device", "usb-storage,drive=stick,bootindex=0"])
            }
        };
        qemu.args(&self.more);
        qemu
    }

    /// Runs an image until it ends, with this terminal as its serial port; its code.
    pub(super) fn run_here(&self, image: &Image) -> Result<u8, String> {
        let status = self.command(image).status();
        code(status.map_err(|e| format!("qemu-system-x86_64 does not run: {e}"))?)
    }

    /// Runs an image until it ends.
    pub(super) fn run(&self, image: &Image) -> Result<End, String> {
        let mut qemu = self.command(image);
        qemu.stdin(if self.typed.is_empty() { Stdio::null() } else { Stdio::piped() }).stdout(Stdio::piped());
        let mut child = qemu.spawn().map_err(|e| format!("qemu-system-x86_64 does not run: {e}"))?;
        let mut pipe = child.stdout.take().expect("it was asked for");
        let (mut keyboard, mut typed) = (child.stdin.take(), self.typed.clone().into_iter());
        let reader = std::thread::spawn(move || {
            let (mut said, mut piece) = (Vec::new(), [0; 4096]);
            // QEMU has ended where nothing more can be read or typed: its status says how.
            let mut prompts = 0;
            while let Some(len) = pipe.read(&mut piece).ok().filter(|&len| len > 0) {
                said.extend_from_slice(&piece[..len]);
                // What another process says may follow a prompt at once.
                let there = said.windows(PROMPT.len()).filter(|&window| window == PROMPT).count();
                for line in typed.by_ref().take(there - prompts) {
                    if let Some(keyboard) = &mut keyboard {
                        let line = format!("{line}\r");
                        let _ = keyboard.write_all(line.as_bytes()).and_then(|()| keyboard.flush());
                    }
                }
                prompts = there;
            }
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
        match code(status) {
            Ok(code) => Ok(End { said, code }),
            Err(why) => Err(format!("{said}{why}")),
        }
    }
}

/// The image's own code. The device makes an odd status of it. Any other is QEMU's own, which also ends when a machine
/// resets.
fn code(status: ExitStatus) -> Result<u8, String> {
    match status.code() {
        Some(odd) if odd & 1 == 1 => Ok((odd >> 1) as u8),
        _ => Err(format!("the machine ended without a code ({status})")),
    }
}

impl fmt::Display for Qemu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Qemu { machine, cpus, memory_mb, line, more, stick, typed: _ } = self;
        write!(f, "{}, {cpus} CPUs, {memory_mb} MB, `{line}`", machine.name())?;
        stick.iter().try_for_each(|stick| write!(f, ", from {}", stick.display()))?;
        more.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}
