//! Sites made up after what is published of two traces: of NASA's Kennedy Space Center, and of Rice University's
//! Computer Science Department (sf_buf paper, 6.5.2). Neither trace is at hand.
//!
//! * **Sizes** are distributed as in SURGE (Barford and Crovella, "Generating Representative Web Workloads", 1998):
//!   lognormal below 133 KB, Pareto above, and then scaled to the footprint that the sf_buf paper states, none larger
//!   than the largest file known.
//! * **Popularity** falls with rank as Zipf's law has it, with an exponent of [`EXPONENT`].
//! * **Which sizes are popular** is left to chance, and then files change places until a request transfers as much on
//!   average as published: popular documents are smaller than others.
//! * **Requests** are independent of each other. A real trace repeats itself sooner than that, so that a small cache
//!   does better there.
//! * **The order of last use** is that of a stream without beginning: the time since a file was last asked for is then
//!   distributed exponentially with its popularity. A stream as long as NASA's trace asks for every file many times, so
//!   the two do not differ.

use super::site::{Site, SkippedLines};
use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// What is known of a trace.
pub(super) struct Published {
    pub(super) name: &'static str,
    files: usize,
    footprint_bytes: u64,
    /// Bytes of an answer, on average over all requests.
    mean_answer_bytes: f64,
    largest_bytes: f64,
}

/// NASA: 3,461,612 requests and 65,524,314,915 bytes in July and August of 1995 (Internet Traffic Archive, NASA-HTTP,
/// and the log's own sum). Distinct documents are 0.3 to 2.1 % of requests (Arlitt and Williamson, "Web Server Workload
/// Characterization", 1996), so 10,000 files, assumed within that. The largest answer has 6,823,936 bytes, as published
/// analyses of the log have it.
///
/// Rice: of the department's trace 26,948 files with 933 MB are known from IO-Lite (Pai, Druschel and Zwaenepoel,
/// 1999); the sf_buf paper has 1.1 GB, so files of the same mean size, assumed. How much an answer has on average, and
/// how large the largest is, is not published: taken in the same proportion to the mean file as NASA's, and as NASA's.
///
/// Footprints: sf_buf paper, 6.5.2, with 1 MB = 2^20 bytes, as it calls 64K pages of 4 KB 256 MB.
pub(super) const PUBLISHED: [Published; 2] = [
    Published {
        name: "nasa",
        files: 10_000,
        footprint_bytes: 271_266_611,
        mean_answer_bytes: 65_524_314_915.0 / 3_461_612.0,
        largest_bytes: 6_823_936.0,
    },
    Published {
        name: "rice",
        files: 32_500,
        footprint_bytes: 1_181_116_006,
        mean_answer_bytes: 65_524_314_915.0 / 3_461_612.0 / (271_266_611.0 / 10_000.0)
            * (1_181_116_006.0 / 32_500.0),
        largest_bytes: 6_823_936.0,
    },
];

/// Of popularity over rank. A tenth of the documents gets 80 to 95 % of all requests (Arlitt and Williamson): with 1,
/// Zipf's own law, it would be 76 % here; 1.1 is the first step above that is within.
const EXPONENT: f64 = 1.1;

/// SURGE: the logarithms of sizes below [`CUT_BYTES`], their share of all files, and the exponent above.
const BODY_MU: f64 = 9.357;
const BODY_SIGMA: f64 = 1.318;
const BODY_SHARE: f64 = 0.93;
const CUT_BYTES: f64 = 133_000.0;
const TAIL_ALPHA: f64 = 1.1;

/// Files change places until the mean is that near to the published one.
const MEAN_WITHIN: f64 = 0.002;

impl Published {
    /// A site with the next `count` requests.
    pub(super) fn site(&self, seed: u64, count: usize) -> Site {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let popularity = popularity(self.files);
        let mut sizes = self.sizes(&mut rng);
        self.arrange(&mut sizes, &popularity, &mut rng);
        let age = |share: &f64, rng: &mut ChaCha8Rng| -unit(rng).ln() / share;
        let mut ages: Vec<(f64, u32)> =
            (0..).zip(&popularity).map(|(file, share)| (age(share, &mut rng), file)).collect();
        ages.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut until = 0.0;
        let cumulative: Vec<f64> = popularity
            .iter()
            .map(|share| {
                until += share;
                until
            })
            .collect();
        let requests = (0..count).map(|_| {
            let at = unit(&mut rng) * until;
            cumulative.partition_point(|&end| end < at).min(self.files - 1) as u32
        });
        let requests = requests.collect();
        let last_used = ages.into_iter().map(|(_, file)| file).collect();
        Site { sizes, last_used, requests, skipped: SkippedLines::default() }
    }

    fn sizes(&self, rng: &mut ChaCha8Rng) -> Vec<u64> {
        let raw: Vec<f64> = (0..self.files).map(|_| self.size(rng)).collect();
        let scaled = |factor: f64| {
            raw.iter().map(move |size| (size * factor).min(self.largest_bytes).max(1.0).round() as u64)
        };
        // The largest stay as they are, so the factor is found step by step.
        let mut factor = 1.0;
        for _ in 0..32 {
            factor *= self.footprint_bytes as f64 / scaled(factor).sum::<u64>() as f64;
        }
        scaled(factor).collect()
    }

    /// A size as SURGE has it.
    fn size(&self, rng: &mut ChaCha8Rng) -> f64 {
        let in_body = unit(rng) < BODY_SHARE;
        loop {
            let size = if in_body {
                (BODY_MU + BODY_SIGMA * normal(rng)).exp()
            } else {
                CUT_BYTES / unit(rng).powf(1.0 / TAIL_ALPHA)
            };
            if in_body == (size <= CUT_BYTES) && size <= self.largest_bytes {
                return size;
            }
        }
    }

    /// Has files change places until answers are as large as published.
    fn arrange(&self, sizes: &mut [u64], popularity: &[f64], rng: &mut ChaCha8Rng) {
        let mut mean: f64 = sizes.iter().zip(popularity).map(|(&size, share)| size as f64 * share).sum();
        let off = |mean: f64| (mean / self.mean_answer_bytes - 1.0).abs();
        // Far more than it takes.
        for _ in 0..100 * sizes.len() {
            if off(mean) < MEAN_WITHIN {
                break;
            }
            let [a, b] = [(); 2].map(|()| (rng.next_u64() % sizes.len() as u64) as usize);
            let change = (sizes[b] as f64 - sizes[a] as f64) * (popularity[a] - popularity[b]);
            if off(mean + change) < off(mean) {
                sizes.swap(a, b);
                mean += change;
            }
        }
    }
}

/// Each file's share of requests, the most popular one's first.
fn popularity(files: usize) -> Vec<f64> {
    let weights: Vec<f64> = (1..=files).map(|rank| (rank as f64).powf(-EXPONENT)).collect();
    let all: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / all).collect()
}

/// Above 0, at most 1.
fn unit(rng: &mut ChaCha8Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Box and Muller.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (-2.0 * unit(rng).ln()).sqrt() * (std::f64::consts::TAU * unit(rng)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(value: f64, of: f64, share: f64) -> bool {
        (value / of - 1.0).abs() < share
    }

    #[test]
    fn the_published_properties_hold() {
        for published in &PUBLISHED {
            for seed in [1, 2, 3] {
                let site = published.site(seed, 200_000);
                let footprint = site.sizes.iter().sum::<u64>() as f64;
                assert!(within(footprint, published.footprint_bytes as f64, 0.001), "{footprint}");
                assert_eq!(site.sizes.len(), published.files);
                let mut counts = vec![0; published.files];
                site.requests.iter().for_each(|&file| counts[file as usize] += 1);
                counts.sort_unstable_by(|a, b| b.cmp(a));
                let top = counts[..published.files / 10].iter().sum::<u64>() as f64;
                let share = top / site.requests.len() as f64;
                assert!((0.80..0.95).contains(&share), "{}: {share}", published.name);
                let mut last_used = site.last_used.clone();
                last_used.sort_unstable();
                assert!(last_used.iter().copied().eq(0..published.files as u32), "each file once");
            }
        }
    }

    /// Over many requests: one draw of a large file moves the mean of few.
    #[test]
    fn an_answer_of_nasa_has_the_published_mean() {
        let site = PUBLISHED[0].site(1, 2_000_000);
        let bytes: u64 = site.requests.iter().map(|&file| site.sizes[file as usize]).sum();
        let mean = bytes as f64 / site.requests.len() as f64;
        assert!(within(mean, 18_929.0, 0.03), "{mean}");
    }

    #[test]
    fn a_seed_makes_the_same_site() {
        let [a, b, other] = [1, 1, 2].map(|seed| PUBLISHED[0].site(seed, 100));
        assert_eq!(a, b);
        assert_ne!(a.requests, other.requests);
    }

    /// The order of last use made at once is that of a long stream of requests.
    #[test]
    fn popular_files_were_used_last() {
        let site = PUBLISHED[0].site(1, 0);
        let recent = &site.last_used[site.last_used.len() - 100..];
        let popular = recent.iter().filter(|&&file| file < 500).count();
        // Of the last hundred distinct files of a stream.
        let stream = PUBLISHED[0].site(2, 100_000).requests;
        let mut seen = Vec::new();
        for file in stream.into_iter().rev() {
            if !seen.contains(&file) {
                seen.push(file);
            }
            if seen.len() == 100 {
                break;
            }
        }
        let in_stream = seen.iter().filter(|&&file| file < 500).count();
        assert!(popular.abs_diff(in_stream) < 20, "{popular} and {in_stream}");
    }
}
