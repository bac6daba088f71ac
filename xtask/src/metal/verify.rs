//! The same program on the modelled machine and on metal, and whether both do the same.
//!
//! `pageferry-verify` runs the model and leaves turns and events; QEMU runs the image by these turns, and leaves its
//! events and what a witness saw; `pageferry-verify` compares. It says so line by line, and this fails if any differs.
//! Without a C compiler there is no witness, which is said.

use super::image::{Image, root};
use super::qemu::{Machine, Qemu};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compared.
#[derive(Clone)]
pub(super) struct Comparison {
    /// The program of the first process.
    pub(super) experiment: String,
    /// CPUs.
    pub(super) cpus: usize,
    /// Which order of CPUs; `timed` for that of their clocks.
    pub(super) seed: String,
    /// The scheme of ephemeral mappings.
    pub(super) scheme: String,
    /// A defect that is planted on both.
    pub(super) defect: Option<String>,
    /// Of programs at random, the first and how many; other experiments have none.
    pub(super) programs: Option<(u32, u32)>,
}

impl Comparison {
    /// The words that both are given.
    fn words(&self) -> Vec<String> {
        let Comparison { experiment, cpus, scheme, defect, .. } = self;
        let words = [
            format!("experiment={experiment}"),
            format!("scheme={scheme}"),
            format!("cpus={cpus}"),
            "frames=65536".into(),
        ];
        let defect = defect.iter().map(|defect| format!("defect={defect}"));
        let programs =
            self.programs.map(|(first, count)| [format!("first={first}"), format!("programs={count}")]);
        words.into_iter().chain(defect).chain(programs.into_iter().flatten()).collect()
    }
}

/// Builds `pageferry-verify`, and says where it is. Whoever has it says so in PAGEFERRY_VERIFY: for this package alone
/// Cargo compiles nearly everything with other features than for the workspace.
fn build_program() -> Result<PathBuf, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    let built = cargo.args(["build", "--quiet", "-p", "pageferry-verify"]).current_dir(root()).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("pageferry-verify cannot be built".into());
    }
    let me = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
    // In the folder of this program, or, where that is a test's, above it.
    let built = me.ancestors().skip(1).map(|folder| folder.join("pageferry-verify"));
    built.into_iter().find(|path| path.is_file()).ok_or("where is pageferry-verify?".into())
}

/// What runs comparisons.
pub(super) struct Verifier {
    program: PathBuf,
    image: Image,
    /// An image in which defects can be planted, if there is to be one.
    planted: Option<Image>,
    witness: Option<PathBuf>,
    folder: PathBuf,
}

impl Verifier {
    /// Builds what is needed.
    pub(super) fn build(with_defects: bool) -> Result<Verifier, String> {
        let program = match std::env::var_os("PAGEFERRY_VERIFY") {
            Some(built) => PathBuf::from(built),
            None => build_program()?,
        };
        let image = Image::build(&["tap"])?;
        let planted = if with_defects { Some(Image::build(&["tap", "verify"])?) } else { None };
        let folder = image.path.with_file_name("verify");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let witness = compile_witness(&folder);
        if witness.is_none() {
            println!("there is no witness: no C compiler, or no nm");
        }
        Ok(Verifier { program, image, planted, witness, folder })
    }

    /// Runs the model, and says what it said.
    pub(super) fn record(&self, comparison: &Comparison) -> Result<String, String> {
        for name in ["turns.bin", "model.bin", "metal.bin", "witness.bin"] {
            let _ = fs::remove_file(self.folder.join(name));
        }
        let mut model = Command::new(&self.program);
        model.arg("record").arg(&self.folder).arg(&comparison.seed).args(comparison.words());
        let output = model.output().map_err(|e| format!("pageferry-verify does not run: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Has QEMU run the image by a file of turns; what it said, and its code.
    pub(super) fn conduct(&self, comparison: &Comparison, turns: &Path) -> Result<(String, u8), String> {
        let image = match (&comparison.defect, &self.planted) {
            (Some(_), Some(planted)) => planted,
            _ => &self.image,
        };
        let path = |name: &str| self.folder.join(name).display().to_string();
        let (events, turns) = (format!("file:{}", path("metal.bin")), turns.display().to_string());
        let mut qemu = Qemu::new(Machine::Microvm, comparison.cpus).with_line(&comparison.words().join(" "));
        qemu = qemu.with(&["-accel", "tcg,thread=single", "-initrd", &turns, "-debugcon", &events]);
        if let Some(witness) = &self.witness {
            let plugin = plugin(witness, image, &path("witness.bin"))?;
            qemu = qemu.with(&["-plugin", &plugin]);
        }
        let end = qemu.run(image)?;
        Ok((end.said, end.code))
    }

    /// Runs both and compares; what was found, and whether nothing differs.
    pub(super) fn compare(&self, comparison: &Comparison) -> Result<(String, bool), String> {
        let mut said = self.record(comparison)?;
        let (metal, code) = self.conduct(comparison, &self.folder.join("turns.bin"))?;
        said.push_str(&metal);
        // With a defect bytes may be wrong, on both.
        let is_well = code == 0 || comparison.defect.is_some();
        if !is_well {
            said.push_str(&format!("metal ended with code {code}\n"));
        }
        let output = Command::new(&self.program).arg("compare").arg(&self.folder).output();
        let output = output.map_err(|e| format!("pageferry-verify does not run: {e}"))?;
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((said, output.status.success() && is_well))
    }

    /// What runs the model.
    pub(super) fn program(&self) -> Command {
        Command::new(&self.program)
    }

    /// The turns of the last run of the model.
    pub(super) fn turns(&self) -> PathBuf {
        self.folder.join("turns.bin")
    }
}

/// Compiles the witness; nothing where that cannot be.
fn compile_witness(folder: &Path) -> Option<PathBuf> {
    let (source, to) = (root().join("machines/verify/witness/witness.c"), folder.join("witness.so"));
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-o",
    ]);
    let compiled = cc.arg(&to).arg(source).status().is_ok_and(|status| status.success());
    (compiled && Command::new("nm").arg("--version").output().is_ok()).then_some(to)
}

/// The argument that loads the witness, with the addresses that it needs to know.
fn plugin(witness: &Path, image: &Image, out: &str) -> Result<String, String> {
    /// Where `machines/metal/src/area.rs` maps the first device, and the APIC's command register in it.
    const COMMAND: &str = "0xfffffe8000000300";
    let output = Command::new("nm").arg(&image.path).output().map_err(|e| format!("nm does not run: {e}"))?;
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.split_whitespace().nth(2) == Some(name));
        let address = line.and_then(|line| line.split_whitespace().next());
        address.map(|address| format!("0x{address}")).ok_or(format!("the image has no symbol {name}"))
    };
    let (fault, from, to) = (
        address("pageferry_on_fault")?,
        address("pageferry_watched_from")?,
        address("pageferry_watched_to")?,
    );
    Ok(format!("{},out={out},fault={fault},from={from},to={to},command={COMMAND}", witness.display()))
}

/// Programs at random.
pub(super) fn random(programs: (u32, u32), cpus: usize, seed: &str, scheme: &str) -> Comparison {
    Comparison {
        experiment: "random".into(),
        cpus,
        seed: seed.into(),
        scheme: scheme.into(),
        defect: None,
        programs: Some(programs),
    }
}

/// What is compared by default: each experiment with each scheme that it knows, on several CPUs, in several orders.
pub(super) fn matrix() -> Vec<Comparison> {
    let mut all = Vec::new();
    let mut add = |experiment: &str, scheme: &str, cpus, seed: &str| {
        all.push(Comparison {
            experiment: experiment.into(),
            cpus,
            seed: seed.into(),
            scheme: scheme.into(),
            defect: None,
            programs: None,
        });
    };
    for experiment in ["carry", "echo", "pipe"] {
        for scheme in ["direct", "cache", "original"] {
            // Each order with some of them.
            let orders =
                if experiment == "carry" { [(1, "timed"), (4, "1")] } else { [(2, "7"), (4, "timed")] };
            for (cpus, seed) in orders {
                add(experiment, scheme, cpus, seed);
            }
        }
    }
    for experiment in ["ping-pong", "loan", "pipeline", "mixed"] {
        for scheme in ["direct", "cache", "original"] {
            for (cpus, seed) in [(1, "timed"), (4, "1")] {
                add(experiment, scheme, cpus, seed);
            }
        }
    }
    add("echo", "original", 8, "3");
    for (scheme, cpus, seed) in [("direct", 1, "timed"), ("original", 4, "1")] {
        add("edges", scheme, cpus, seed);
    }
    // A few; `metal verify random` takes as many as one likes.
    for (first, scheme) in [(1, "direct"), (21, "cache"), (6, "original")] {
        for (cpus, seed) in [(1, "timed"), (4, "9")] {
            all.push(random((first, 5), cpus, seed, scheme));
        }
    }
    all
}

/// Defects that must make the logs differ, for the hardware's translations are as stale as the model's, and others.
pub(super) fn controls() -> Vec<Comparison> {
    let control = |defect: &str, experiment: &str, cpus| Comparison {
        experiment: experiment.into(),
        cpus,
        seed: "1".into(),
        scheme: "original".into(),
        defect: Some(defect.into()),
        programs: None,
    };
    vec![
        control("MissingShootdown", "carry", 2),
        control("MissingShootdown", "echo", 4),
        control("MissingFlush", "pipe", 1),
    ]
}
