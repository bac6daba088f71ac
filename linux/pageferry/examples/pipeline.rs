//! Camera, filter, display: three processes, and frames that are donated from each to the next.
//!
//! A donated frame is the receiver's own: the filter works on it where it lies, without a copy and without a
//! page fault. What it has made it donates to the display from a pool of its own. Run it with a number of
//! frames: `cargo run --release --example pipeline 300`.

use pageferry::{Command, Config, Error, Parent, PeerFault};
use std::time::Instant;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

fn config() -> Config {
    Config::new().slots(4).slot_bytes(WIDTH * HEIGHT)
}

fn main() -> Result<(), Error> {
    if let Some(camera) = Parent::get()? {
        return filter(&camera);
    }
    let frames = std::env::args().nth(1).map_or(60, |text| text.parse().expect("a number of frames"));
    let mut filter = Command::this_program()?.spawn()?;
    let to_filter = filter.sender(config())?;
    let display = filter.receiver(config())?;

    // The display runs beside the camera here; it could be a process of its own as well.
    let shown = std::thread::spawn(move || {
        let mut shown = 0;
        loop {
            match display.recv() {
                Ok(frame) => {
                    let expected = !(frame.tag() as u8);
                    assert!(frame.iter().all(|&pixel| pixel == expected), "frame {} is torn", frame.tag());
                    shown += 1;
                }
                Err(Error::Peer(PeerFault::Dead)) => return shown,
                Err(error) => panic!("{error}"),
            }
        }
    });

    let began = Instant::now();
    for number in 0..frames {
        let mut frame = to_filter.buffer(WIDTH * HEIGHT)?;
        frame.fill(number as u8);
        to_filter.donate_tagged(frame, number)?;
    }
    // The filter sees that no more will come, and ends when it has passed on all.
    drop(to_filter);
    let shown: u64 = shown.join().expect("the display does not panic");
    filter.process().wait().expect("the filter ends");
    let rate = shown as f64 / began.elapsed().as_secs_f64();
    println!("{shown} frames of {WIDTH} x {HEIGHT} through three stages, {rate:.0} a second");
    assert_eq!(shown, frames);
    Ok(())
}

/// The process between: turns each frame into its negative.
fn filter(camera: &Parent) -> Result<(), Error> {
    let from_camera = camera.receiver(config())?;
    let to_display = camera.sender(config())?;
    loop {
        let frame = match from_camera.recv() {
            Ok(frame) => frame,
            Err(Error::Peer(PeerFault::Dead)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut negative = to_display.buffer(frame.len())?;
        for (to, from) in negative.iter_mut().zip(frame.iter()) {
            *to = !from;
        }
        to_display.donate_tagged(negative, frame.tag())?;
    }
}
