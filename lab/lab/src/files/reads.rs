//! What each workload reads of an experiment's file: its parameters with their ranges, and its choices with their
//! words.
//!
//! A file must have these and no others: one that is missing could not be read, and one too many would be a setting
//! that does nothing.

use super::experiment_file::{ExperimentFile, Workload};
use pageferry_sourced::{Fault, Range, nearest, range};

/// Bytes of a buffer or a file, bytes in all, and how often something is done.
const BUFFER: i64 = 1 << 32;
const TOTAL: i64 = 1 << 40;
const TIMES: i64 = 1 << 30;
const WARMUP: i64 = 1 << 20;

type Words = (&'static str, &'static [&'static str]);

const SEND: Words = ("send", &["copy", "loan", "auto"]);
const RECEIVE: Words = ("receive", &["copy", "transfer", "auto"]);
const BY: Words = ("by", &["socket", "pass", "auto"]);
const FLAG: &[&str] = &["true", "false"];

impl Workload {
    /// The parameters that it reads, and what they may be.
    pub(super) fn parameters(self) -> &'static [Range] {
        match self {
            Workload::Invalidate => const { &[range("times", 1, TIMES)] },
            Workload::BwPipe => {
                const {
                    &[
                        range("total_bytes", 1, TOTAL),
                        range("chunk_bytes", 1, BUFFER),
                        range("warmup_chunks", 0, WARMUP),
                    ]
                }
            }
            Workload::EphemeralHit => const { &[range("times", 1, TIMES), range("pages", 1, WARMUP)] },
            Workload::NullWrite => {
                const {
                    &[
                        range("size_bytes", 1, BUFFER),
                        range("total_bytes", 1, TOTAL),
                        range("warmup_writes", 0, WARMUP),
                    ]
                }
            }
            Workload::NullRead => {
                const {
                    &[
                        range("size_bytes", 1, BUFFER),
                        range("total_bytes", 1, TOTAL),
                        range("warmup_reads", 0, WARMUP),
                    ]
                }
            }
            Workload::UvmPipe => {
                const {
                    &[
                        range("size_bytes", 1, BUFFER),
                        range("total_bytes", 1, TOTAL),
                        range("warmup_writes", 0, WARMUP),
                    ]
                }
            }
            Workload::FileRead => {
                const {
                    &[
                        range("size_bytes", 1, BUFFER),
                        range("file_bytes", 1, BUFFER),
                        range("warmup_passes", 0, WARMUP),
                        range("passes", 1, WARMUP),
                    ]
                }
            }
            Workload::Sound => {
                const {
                    &[
                        range("size_bytes", 1, BUFFER),
                        range("total_bytes", 1, TOTAL),
                        range("buffers", 1, WARMUP),
                        range("warmup_calls", 0, WARMUP),
                    ]
                }
            }
            Workload::PingPong | Workload::Pipeline => {
                const {
                    &[
                        range("size_bytes", 1, BUFFER),
                        range("rounds", 1, TIMES),
                        range("warmup_rounds", 0, WARMUP),
                        range("loop_instructions", 0, WARMUP),
                    ]
                }
            }
            Workload::Netperf => {
                const {
                    &[
                        range("socket_bytes", 4096, 16 << 20),
                        range("send_bytes", 1, 16 << 20),
                        range("warmup_bytes", 0, BUFFER),
                        range("total_bytes", 1, TOTAL),
                    ]
                }
            }
            Workload::FlipReceive => {
                const {
                    &[
                        range("socket_bytes", 4096, 16 << 20),
                        range("read_bytes", 1, 16 << 20),
                        range("warmup_bytes", 0, BUFFER),
                        range("total_bytes", 1, TOTAL),
                        range("processes", 1, 64),
                        range("process_bytes", 4096, 16 << 20),
                    ]
                }
            }
            Workload::Postmark => {
                const {
                    &[
                        range("files", 1, 100_000),
                        range("transactions", 1, WARMUP),
                        range("disk_mb", 1, 4096),
                        range("block_bytes", 512, 65_536),
                        range("user_instructions", 0, TIMES),
                    ]
                }
            }
            Workload::Schemes => const { &[range("pages", 16, 1 << 14), range("rounds", 1, WARMUP)] },
            Workload::Dd => const { &[range("disk_mb", 1, 4096), range("block_bytes", 512, 16 << 20)] },
            Workload::Web => {
                const {
                    &[
                        range("clients", 1, 128),
                        range("processes", 1, 200),
                        range("warmup_requests", 0, WARMUP),
                        range("requests", 1, WARMUP),
                        range("user_instructions", 0, TIMES),
                    ]
                }
            }
            Workload::KernelCompile => const { &[range("sources", 1, WARMUP)] },
            Workload::Replay => const { &[range("processes", 1, 256)] },
            Workload::FrameBuffer => const { &[range("rectangles", 1, WARMUP), range("compilers", 0, 64)] },
            Workload::Mixed => const { &[range("rounds", 1, TIMES), range("warmup_rounds", 0, WARMUP)] },
            Workload::Packet => {
                const {
                    &[
                        range("size_bytes", 1, 1472),
                        range("packets", 1, WARMUP),
                        range("warmup", 0, WARMUP),
                        range("pause_us", 100, 1_000_000),
                        range("corunner_bytes", 1, 1 << 24),
                        range("protocol_instructions", 0, WARMUP),
                        range("sum_instructions", 0, 1000),
                    ]
                }
            }
            Workload::FileCalls => {
                const {
                    &[
                        range("size_bytes", 1, 1 << 20),
                        range("file_bytes", 1, 1 << 26),
                        range("calls", 1, WARMUP),
                        range("warmup", 0, WARMUP),
                        range("block_bytes", 512, 65_536),
                    ]
                }
            }
            Workload::Ispc => {
                const {
                    &[
                        range("steps", 1, WARMUP),
                        range("warmup", 0, WARMUP),
                        range("data_bytes", 1, 1 << 20),
                        range("beside_pages", 0, 4096),
                    ]
                }
            }
            Workload::IspcClients => {
                const {
                    &[
                        range("clients", 1, 64),
                        range("servers", 1, 64),
                        range("steps", 1, WARMUP),
                        range("warmup", 0, WARMUP),
                        range("data_bytes", 1, 1 << 20),
                        range("yields", 0, 1000),
                    ]
                }
            }
            Workload::Message => {
                const {
                    &[
                        range("size_bytes", 1, 1 << 20),
                        range("rounds", 1, WARMUP),
                        range("warmup_rounds", 0, WARMUP),
                    ]
                }
            }
            Workload::CostGrowth => const { &[range("n", 1, BUFFER), range("times", 1, WARMUP)] },
        }
    }

    /// The choices that it reads, and the words that it knows.
    pub(super) fn choices(self) -> &'static [Words] {
        match self {
            Workload::Invalidate | Workload::BwPipe | Workload::EphemeralHit | Workload::IspcClients => &[],
            Workload::KernelCompile | Workload::FrameBuffer | Workload::Dd | Workload::Postmark => &[],
            Workload::Netperf => &[("zero_copy", &["true", "false", "auto"])],
            Workload::FlipReceive => &[
                ("by", &["copy", "flip", "mock-copy", "mock-flip", "auto"]),
                ("touch", FLAG),
                ("driver_flushes", FLAG),
            ],
            Workload::Replay | Workload::Web => &[("trace", &[])],
            Workload::NullWrite => &[SEND],
            Workload::NullRead => &[RECEIVE],
            Workload::UvmPipe => &[SEND, RECEIVE, ("refill", FLAG)],
            Workload::Mixed => &[SEND, RECEIVE],
            Workload::FileRead => &[("receive", &["copy", "transfer", "map", "auto"]), ("touch", FLAG)],
            Workload::Sound => &[("direction", &["play", "record"]), SEND, RECEIVE],
            Workload::PingPong => &[BY, ("touch", FLAG)],
            Workload::Pipeline => &[BY, SEND],
            Workload::Packet => &[("by", &["area", "sockets"]), ("corunner", FLAG)],
            Workload::FileCalls => &[("op", &["read", "write"])],
            Workload::Message => {
                &[("by", &["pipe", "socket", "loan", "transfer", "both", "pass", "auto", "ispc"])]
            }
            Workload::Ispc => {
                &[("op", &["sync-request", "async-request", "sync-return", "async-return"]), ("data", FLAG)]
            }
            Workload::Schemes => {
                &[("user", &["memory-disk", "exec", "ptrace", "vnode-pager", "pipe", "socket"])]
            }
            Workload::CostGrowth => {
                &[("of", &["loan", "transfer", "pass", "lookup", "space", "amap", "fork"])]
            }
        }
    }
}

/// Refuses a file whose parameters and choices are not those of its workload.
pub(super) fn check(file: &ExperimentFile) -> Result<(), Fault> {
    let fault = |key: String, problem: String| Err(Fault { key, problem, suggestion: None });
    let (ranges, words) = (file.workload.parameters(), file.workload.choices());
    same_names("parameters", file.parameters.keys(), &ranges.iter().map(|r| r.key).collect::<Vec<_>>())?;
    same_names("choices", file.choices.keys(), &words.iter().map(|w| w.0).collect::<Vec<_>>())?;
    for Range { key, least, most } in ranges {
        let p = &file.parameters[*key];
        let numbers = [
            ("min", Some(p.min)),
            ("value", Some(p.value)),
            ("reproduce", p.reproduce),
            ("quick", Some(p.quick)),
        ];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            let least = if name == "min" { *least } else { p.min };
            if !(least..=*most).contains(&number) {
                let key = format!("parameters.{key}.{name}");
                return fault(key, format!("{number}, expected {least} to {most}"));
            }
        }
    }
    for (key, known) in words {
        let allowed = &file.choices[*key].allowed;
        if file.choices[*key].or_file {
            // What files there are, nothing here knows.
            continue;
        }
        if let Some(word) = allowed.iter().find(|word| !known.contains(&word.as_str())) {
            let suggestion = nearest(word, known.iter().copied()).map(str::to_owned);
            let problem = format!("`{word}`, expected some of: {}", known.join(", "));
            return Err(Fault { key: format!("choices.{key}.allowed"), problem, suggestion });
        }
    }
    Ok(())
}

fn same_names<'a>(
    table: &str,
    mut there: impl Iterator<Item = &'a String> + Clone,
    read: &[&str],
) -> Result<(), Fault> {
    if let Some(missing) = read.iter().find(|name| there.clone().all(|there| there != *name)) {
        let problem = format!("`{missing}` is missing, which the workload reads");
        return Err(Fault { key: table.into(), problem, suggestion: None });
    }
    let Some(name) = there.find(|name| !read.contains(&name.as_str())) else { return Ok(()) };
    let suggestion = nearest(name, read.iter().copied()).map(str::to_owned);
    let problem = if read.is_empty() {
        "the workload reads none".to_owned()
    } else {
        format!("the workload reads no such thing, only {}", read.join(", "))
    };
    Err(Fault { key: format!("{table}.{name}"), problem, suggestion })
}
