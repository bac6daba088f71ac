//! How many modelled memory accesses a host core carries out in a second: copies of 64 KB from and to cached buffers,
//! on one CPU alone and on two at once.

use pageferry_hal::machine::PteWidth;
use pageferry_hal::x86::{Format, PTE_P, PTE_W};
use pageferry_hal::{CpuId, Machine, Pa, Va};
use pageferry_model::{MachineConfig, Model, Options};
use std::time::Instant;

const CHUNK: usize = 64 << 10;

fn copies(m: &Model, buffers: Va, times: usize) {
    m.load_root(Pa(0x1000));
    for _ in 0..times {
        m.copy(buffers + CHUNK, buffers, CHUNK).expect("mapped");
    }
}

fn main() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/");
    let read = |n: &str| std::fs::read_to_string(format!("{dir}{n}.toml")).ok();
    for name in ["xeon-up", "xeon-mp"] {
        let config = MachineConfig::parse(name, &read(name).expect("a file"), &read).expect("a machine");
        let model = Model::new(&config, Options::default()).expect("a machine");
        let started = Instant::now();
        model
            .run(Box::new(|m| {
                let f = Format::I386;
                m.pte_fill(f.slot(Pa(0x1000), Va(0xc000_0000), 1), PteWidth::Four, 0x2000 | PTE_P | PTE_W);
                for page in 0..64 {
                    let at = f.slot(Pa(0x2000), Va(0xc000_0000 + (page << 12)), 0);
                    m.pte_fill(at, PteWidth::Four, (page + 16) << 12 | PTE_P | PTE_W);
                }
                if m.cpus().len() > 1 {
                    let m2 = m.clone();
                    let c = m.context_new(
                        "second",
                        Box::new(move || {
                            copies(&m2, Va(0xc002_0000), 4000);
                            None
                        }),
                    );
                    m.start_cpu(CpuId(1), c);
                }
                copies(m, Va(0xc000_0000), 4000);
                None
            }))
            .expect("runs");
        let accesses = model.snapshot().hardware.accesses;
        let seconds = started.elapsed().as_secs_f64();
        println!("{name}: {accesses} accesses, {:.1} million a second", accesses as f64 / seconds / 1e6);
    }
}
