//! `pageferry serve`.

use crate::args::Serve;
use crate::progress;
use crate::run::{chosen, counts, stack};
use crate::terminal::{print_all, table, tell};
use pageferry_lab::record::Law;
use pageferry_lab::{LabError, text};
use pageferry_serve::{Link, MACHINE, Port, Progress, ServeReport, Service, Tap, serve as run};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Serves a directory from a modelled machine, until a signal comes.
pub(crate) fn serve(options: &Serve) -> Result<ExitCode, LabError> {
    let (machine, kernel) = chosen(&options.settings, &options.machine, &options.kernel, "")?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The first signal ends the server and has it tell what it did; another one ends it at once.
        flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .map_err(|e| LabError::io("watch for", "signals", e))?;
    }
    let (link, address) = match (&options.tap, options.port) {
        (Some(name), _) => (Link::Tap(Tap::open(name)?), MACHINE.to_string()),
        (None, port) => {
            let port = Port::open(port.unwrap_or(0))?;
            let address = port.address().map_or_else(String::new, |address| address.to_string());
            (Link::Port(port), address)
        }
    };
    let title = &machine.config.title;
    let (kernel_name, directory) = (kernel.name.clone(), options.directory.display().to_string());
    let says = format!("{title} under {kernel_name} serves {directory} at http://{address}/");
    let loading = progress::bytes(Some(0));
    let hear = move |progress: Progress<'_>| match progress {
        Progress::Loaded { bytes, of } => {
            loading.set_length(of);
            loading.set_position(bytes);
        }
        Progress::Ready { left_out } => {
            loading.finish_and_clear();
            tell(&says);
            tell_left_out(left_out);
            tell("Ctrl-C ends it, and tells what it has cost.");
        }
    };
    let service = Service {
        send: options.send.mode(),
        receive: options.receive.mode(),
        uploads: options.uploads.clone(),
        log: options.log.clone(),
        pcap: options.pcap.clone(),
    };
    let served = run(&machine, &kernel, &options.directory, link, service, stop, hear)?;
    if options.json {
        print_all(&(serde_json::to_string_pretty(&served).expect("plain data") + "\n"))?;
    } else {
        print_all(&told(&served, title))?;
    }
    let broken = Law::broken(&served.laws);
    if let Some(problem) = &served.host_failed {
        tell(&format!("warning: {problem}"));
    }
    if !broken.is_empty() {
        let run = format!("serve on {} under {}", served.machine, served.kernel);
        return Err(LabError::Law { run, broken });
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells what is not served, but not all of much.
fn tell_left_out(left_out: &[String]) {
    const MAX_LINES: usize = 10;
    for line in left_out.iter().take(MAX_LINES) {
        tell(&format!("warning: {line}"));
    }
    if left_out.len() > MAX_LINES {
        tell(&format!("warning: {} more are left out", left_out.len() - MAX_LINES));
    }
}

fn told(served: &ServeReport, title: &str) -> String {
    let grouped = |count: u64| text::grouped(count as i64);
    let counter = |name: &str| grouped(served.counters.get(name).copied().unwrap_or(0));
    let requests: u64 = served.requests.values().sum();
    let by_status: Vec<String> =
        served.requests.iter().map(|(status, count)| format!("{status}: {}", grouped(*count))).collect();
    let by_status = if by_status.is_empty() { String::new() } else { format!(" ({})", by_status.join(", ")) };
    let busy = served.cycles.total - served.cycles.by_cause.get("idle").copied().unwrap_or(0);
    let rows = [
        ("requests", format!("{}{by_status}", grouped(requests))),
        ("answers cut short", grouped(served.cut_short)),
        ("connections", grouped(served.connections)),
        ("clients let go early", grouped(served.hurried)),
        ("bytes of files", text::bytes(served.file_bytes)),
        ("bytes uploaded", text::bytes(served.uploaded_bytes)),
        ("packets", format!("{} received, {} sent", counter("packets_received"), counter("packets_sent"))),
        ("bytes copied", counter("bytes_copied")),
        ("pages moved", format!("{} lent, {} flipped", counter("pages_lent"), counter("pages_donated"))),
        (
            "TLB invalidations",
            format!(
                "{} local, {} remote issued",
                counter("tlb_invalidations_local"),
                counter("tlb_invalidations_remote_issued")
            ),
        ),
        ("modelled time", text::seconds(served.elapsed_us / 1e6)),
        ("cycles busy", grouped(busy)),
        ("on this host", text::seconds(served.host_ms / 1e3)),
    ];
    let mut out = format!("served by {title} under {}\n\n", served.kernel);
    for (name, value) in rows {
        out += &format!("{name:<22}{value}\n");
    }
    out += &format!("\n{}", stack(&served.cycles));
    out + &format!("\n{}", table(&["counter", ">events"], &counts(&served.counters)))
}
