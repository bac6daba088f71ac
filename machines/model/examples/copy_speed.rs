//! How many modelled memory accesses a host core carries out in a second: copies of 64 KB from and to cached buffers,
//! on one CPU alone and on two at once.

#[path = "../tests/it/common/mod.rs"]
mod common;
use common::{ByHand, RW};
use pageferry_hal::{CpuId, Machine, PAGE_SIZE, Va};
use pageferry_model::{MachineConfig, Model, Options};
use std::time::Instant;

const CHUNK: usize = 64 << 10;

fn copies(m: &Model, buffers: Va, times: usize) {
    ByHand::new().activate(m);
    for _ in 0..times {
        m.copy_kernel(buffers + CHUNK, buffers, CHUNK).expect("mapped");
    }
}

fn main() {
    for name in ["xeon-up", "xeon-mp"] {
        let config = MachineConfig::named(name).expect("a machine");
        let model = Model::new(&config, Options::default()).expect("a machine");
        let started = Instant::now();
        model
            .run(Box::new(|m| {
                ByHand::new().grow(m, common::BASE);
                for page in 0..64 {
                    ByHand::map(m, common::BASE + page * PAGE_SIZE, page as u32 + 16, RW);
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
