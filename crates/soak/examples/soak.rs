use std::time::Instant;
fn main() {
    let arg = |i: usize, d: u64| std::env::args().nth(i).map_or(d, |a| a.parse().unwrap());
    let soak = pageferry_soak::Soak { seed: arg(1, 1), steps: arg(2, 100_000), threads: arg(3, 1) as usize };
    let t = Instant::now();
    match soak.run(&|_| true) {
        Ok(n) => println!("{n} steps in {:?}: {:.0}/s", t.elapsed(), n as f64 / t.elapsed().as_secs_f64()),
        Err(f) => println!(
            "{}\nstep {} of {}: {}",
            serde_json::to_string_pretty(&f.program).unwrap(),
            f.failure.step,
            f.episode,
            f.failure.message
        ),
    }
}
