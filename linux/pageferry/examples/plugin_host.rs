//! A host and a plug-in that it does not trust.
//!
//! The plug-in is another program, which may be buggy or hostile. What it sends is taken only as a copy or as
//! sealed memory, so the host can check a result and then use it: the bytes that were checked are the bytes
//! that are used. A plug-in that breaks the protocol, dies, or never answers costs the host an error and
//! nothing else.

use pageferry::{Command, Config, Error, Level, Parent, PeerFault};
use std::time::Duration;

const PIXELS: usize = 3_000_000;

fn config() -> Config {
    Config::new().slots(2).slot_bytes(4 << 20).budget(64 << 20)
}

fn main() -> Result<(), Error> {
    if let Some(host) = Parent::get()? {
        return plugin(&host);
    }
    for behaviour in ["honest", "crashing", "silent"] {
        let program = std::env::current_exe().expect("this program's own path");
        // `new`, not `this_program`: nothing is known of the program that will run there.
        let mut plugin = Command::new(program).arg(behaviour).confined().as_far_as_possible().spawn()?;
        for gap in plugin.gaps().unwrap_or_default() {
            println!("{behaviour}: not as confined as it could be: {gap}");
        }
        let work = plugin.sender(config())?;
        let results = plugin.receiver(config().level(Level::Sealed))?;

        let mut image = work.buffer(PIXELS)?;
        image.fill(40);
        let lent = work.loan(image)?;
        match results.recv_timeout(Duration::from_secs(2)) {
            Ok(result) => {
                // Checked once; it cannot change afterwards.
                let valid = result.len() == PIXELS && result.iter().all(|&pixel| pixel == 41);
                println!(
                    "{behaviour}: {} bytes at level {}, {}",
                    result.len(),
                    result.level(),
                    if valid { "valid" } else { "refused" }
                );
            }
            Err(Error::Peer(PeerFault::Dead)) => println!("{behaviour}: the plug-in is gone"),
            Err(Error::TimedOut(_)) => println!("{behaviour}: no answer in time"),
            Err(error) => println!("{behaviour}: {error}"),
        }
        let _ = plugin.process().kill();
        plugin.process().wait().expect("the plug-in ends");
        // The plug-in is gone, so what was lent to it is home.
        assert_eq!(lent.wait()?[0], 40);
    }
    Ok(())
}

/// What runs on the other side.
fn plugin(host: &Parent) -> Result<(), Error> {
    let work = host.receiver(config())?;
    let results = host.sender(config().level(Level::Sealed))?;
    let image = work.recv()?;
    match std::env::args().nth(1).as_deref() {
        Some("crashing") => std::process::abort(),
        Some("silent") => std::thread::sleep(Duration::from_secs(3600)),
        _ => (),
    }
    let mut result = results.buffer(image.len())?;
    for (to, from) in result.iter_mut().zip(image.iter()) {
        *to = from + 1;
    }
    drop(image);
    // It stays until the host has what it sent.
    results.loan(result)?.wait().map(drop)
}
