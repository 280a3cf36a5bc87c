//! Seeded random choices of integers, the same on every machine.

/// A small generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// `stream` keeps the choices of one purpose apart from those of another under the same seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixer = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        Self(mixer.draw())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: no division, and no bias that a sample could show.
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least.saturating_add(self.below(most.saturating_sub(least).saturating_add(1)))
    }

    pub fn coin(&mut self) -> bool {
        self.draw() >> 63 == 1
    }

    /// Exponentially distributed with a mean, by comparing uniform numbers only (von Neumann): integers, so no two
    /// machines can differ. Cut at 40 means.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        for whole in 0..40 {
            let first = self.draw();
            let (mut last, mut falls) = (first, 0_u32);
            loop {
                let next = self.draw();
                if next > last {
                    break;
                }
                last = next;
                falls += 1;
            }
            // An even number of falls happens with probability e^-first.
            if falls.is_multiple_of(2) {
                let part = u64::try_from((u128::from(first) * u128::from(mean)) >> 64).unwrap_or(0);
                return part.saturating_add(mean.saturating_mul(whole));
            }
        }
        mean.saturating_mul(40)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    fn mean(mut draw: impl FnMut() -> u64) -> u64 {
        (0..100_000).map(|_| draw()).sum::<u64>() / 100_000
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_meet_their_means() {
        let mut random = Random::new(1, 2);
        assert_eq!((random.below(0), random.below(1), random.between(7, 7)), (0, 0, 7));
        let of_range = mean(|| {
            let drawn = random.between(20_000, 40_000);
            assert!((20_000..=40_000).contains(&drawn));
            drawn
        });
        assert!((29_900..30_100).contains(&of_range), "{of_range}");
        let of_exponential = mean(|| random.exponential(1_000_000));
        assert!((985_000..1_015_000).contains(&of_exponential), "{of_exponential}");
    }

    #[test]
    fn the_exponential_has_its_tail() {
        let mut random = Random::new(7, 0);
        let above =
            |n: u64, random: &mut Random| (0..100_000).filter(|_| random.exponential(1_000) > n).count();
        // e^-1 and e^-3.
        let (one, three) = (above(1_000, &mut random), above(3_000, &mut random));
        assert!((36_000..37_600).contains(&one), "{one}");
        assert!((4_700..5_300).contains(&three), "{three}");
    }

    #[test]
    fn seeds_and_streams_differ_and_repeat() {
        let first = |seed, stream| Random::new(seed, stream).draw();
        assert_eq!(first(1, 1), first(1, 1));
        assert_ne!(first(1, 1), first(1, 2));
        assert_ne!(first(1, 1), first(2, 1));
    }
}
