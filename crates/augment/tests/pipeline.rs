//! Draws, the steps of a pipeline, and options that make no sense.

use ndarray::{Array4, s};
use proptest::prelude::*;
use towers_augment::parts::Cutout;
use towers_augment::{
    Draws, Error, FillMode, ImageDataGenerator, Mean, Operation, Pipeline, Samples, Scratch, ShiftRange,
};

fn apply(pipeline: &Pipeline, draws: &Draws, image: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; pipeline.image_len()];
    pipeline.apply(draws, image, &mut out, &mut Scratch::default()).unwrap();
    out
}

fn modes() -> impl Strategy<Value = FillMode> {
    proptest::sample::select(FillMode::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn flips_and_crops_move_what_the_steps_before_made(
        h in 2..7_usize, w in 2..7_usize, c in 1..5_usize, mode in modes(), horizontal: bool, vertical: bool,
        shift in -3.0..3.0_f64, crop in [-1..=1_i32, -1..=1_i32],
    ) {
        let image: Vec<u8> = (0..h * w * c).map(|k| (k * 83 % 256) as u8).collect();
        let pipeline = ImageDataGenerator::new().fill_mode(mode).cval(7.0).build([h, w, c]).unwrap();
        let shifted = Draws { height_shift: shift, width_shift: -shift, ..Draws::default() };
        let all = Draws { horizontal_flip: horizontal, vertical_flip: vertical, crop, ..shifted.clone() };
        let (before, after) = (apply(&pipeline, &shifted, &image), apply(&pipeline, &all, &image));
        for (place, &value) in after.iter().enumerate() {
            let (y, x, channel) = (place / c / w, place / c % w, place % c);
            // Only places that the crop takes from inside: the others are the fill modes' matter.
            let (y, x) = (y as i32 + crop[0], x as i32 + crop[1]);
            if (0..h as i32).contains(&y) && (0..w as i32).contains(&x) {
                let (y, x) = (y as usize, x as usize);
                let y = if vertical { h - 1 - y } else { y };
                let x = if horizontal { w - 1 - x } else { x };
                prop_assert!((value - before[(y * w + x) * c + channel]).abs() < 1e-3);
            } else if mode == FillMode::Constant {
                prop_assert_eq!(value, 7.0);
            }
        }
    }
}

/// A caller may make them, and a debug build must not panic.
#[test]
fn operations_with_numbers_out_of_range_are_refused() {
    let pipeline = ImageDataGenerator::new().build([4, 4, 3]).unwrap();
    for operation in [
        Operation::TranslateX(i32::MIN),
        Operation::TranslateY(i32::MAX),
        Operation::ShearX(1e300),
        Operation::Rotate(f64::NAN),
        Operation::Sharpness(f64::INFINITY),
        Operation::Posterize(u32::MAX),
    ] {
        let mut draws = Draws::default();
        draws.operations[0] = operation;
        let error = pipeline.apply(&draws, &[0; 48], &mut [0.0; 48], &mut Scratch::default()).unwrap_err();
        assert!(error.to_string().contains("must be with operations by 16777216 at most"), "{error}");
    }
}

#[test]
fn draws_depend_on_seed_epoch_and_sample_alone() {
    let options =
        ImageDataGenerator::new().width_shift_range(0.1).height_shift_range(0.1).horizontal_flip(true);
    let pipeline = options.build([32, 32, 3]).unwrap();
    let draws = pipeline.draw(1, 2, 3);
    assert_eq!(draws, pipeline.draw(1, 2, 3));
    for other in [pipeline.draw(0, 2, 3), pipeline.draw(1, 0, 3), pipeline.draw(1, 2, 0)] {
        assert_ne!(draws, other);
    }
    // Another option that is switched on leaves these draws alone.
    let more = options.vertical_flip(true).random_crop(4).cutout(8).build([32, 32, 3]).unwrap().draw(1, 2, 3);
    assert_eq!(
        (more.width_shift, more.height_shift, more.horizontal_flip),
        (draws.width_shift, draws.height_shift, draws.horizontal_flip)
    );
}

#[test]
fn draws_cover_their_ranges() {
    let options =
        ImageDataGenerator::new().horizontal_flip(true).vertical_flip(true).random_crop(2).cutout(3);
    let pipeline = options.build([5, 4, 1]).unwrap();
    let all: Vec<Draws> = (0..4000).map(|sample| pipeline.draw(9, 0, sample)).collect();
    let count = |wanted: &dyn Fn(&Draws) -> bool| all.iter().filter(|draws| wanted(draws)).count();
    assert!((1850..2150).contains(&count(&|draws| draws.horizontal_flip)));
    assert!((1850..2150).contains(&count(&|draws| draws.vertical_flip)));
    assert!((900..1100).contains(&count(&|draws| draws.horizontal_flip && draws.vertical_flip)));
    for crop in -2..=2 {
        assert!((700..900).contains(&count(&|draws| draws.crop[0] == crop)));
        assert!((120..200).contains(&count(&|draws| draws.crop == [crop, -crop])));
    }
    for row in 0..5 {
        assert!((700..900).contains(&count(&|draws| draws.cutout.is_some_and(|cutout| cutout.row == row))));
    }
    assert!(all.iter().all(|draws| draws.cutout.is_some_and(|cutout| cutout.column < 4 && cutout.side == 3)));
}

#[test]
fn an_alternating_flip_mirrors_every_sample_in_every_second_epoch() {
    let options = ImageDataGenerator::new().alternating_flip(true).horizontal_flip(true);
    let pipeline = options.build([4, 4, 3]).unwrap();
    let flipped = |epoch, sample| pipeline.draw(3, epoch, sample).horizontal_flip;
    for sample in 0..1000 {
        assert!((0..7).all(|epoch| flipped(epoch, sample) != flipped(epoch + 1, sample)));
    }
    assert!((430..570).contains(&(0..1000).filter(|&sample| flipped(0, sample)).count()));
}

#[test]
fn draws_of_the_affine_options_cover_their_ranges() {
    let options = ImageDataGenerator::new()
        .rotation_range(30.0)
        .shear_range(10.0)
        .zoom_range([0.5, 1.1])
        .channel_shift_range(20.0)
        .brightness_range([0.2, 1.4]);
    let pipeline = options.build([4, 4, 3]).unwrap();
    let all: Vec<Draws> = (0..4000).map(|sample| pipeline.draw(9, 2, sample)).collect();
    let check = |name: &str, [low, high]: [f64; 2], value: &dyn Fn(&Draws) -> f64| {
        let (least, most) =
            all.iter().map(value).fold((f64::MAX, f64::MIN), |(l, m), x| (l.min(x), m.max(x)));
        let slack = 0.01 * (high - low);
        assert!(low <= least && least < low + slack && high - slack < most && most < high, "{name}");
    };
    check("rotation", [-30.0, 30.0], &|draws| draws.rotation);
    check("shear", [-10.0, 10.0], &|draws| draws.shear);
    check("zoom of rows", [0.5, 1.1], &|draws| draws.zoom[0]);
    check("zoom of columns", [0.5, 1.1], &|draws| draws.zoom[1]);
    check("channel_shift", [-20.0, 20.0], &|draws| draws.channel_shift);
    check("brightness", [0.2, 1.4], &|draws| draws.brightness.unwrap());
}

#[test]
fn crops_come_behind_everything_that_moves_or_recolors() {
    let image: Vec<u8> = (0..8 * 7 * 3).map(|k| (k * 83 % 256) as u8).collect();
    let pipeline =
        ImageDataGenerator::new().fill_mode(FillMode::Constant).cval(7.0).build([8, 7, 3]).unwrap();
    let before = Draws { rotation: 20.0, horizontal_flip: true, channel_shift: 9.0, ..Draws::default() };
    let crop = [2, -1];
    let (full, cropped) =
        (apply(&pipeline, &before, &image), apply(&pipeline, &Draws { crop, ..before.clone() }, &image));
    for (place, &value) in cropped.iter().enumerate() {
        let (y, x, channel) = ((place / 21) as i32 + crop[0], (place / 3 % 7) as i32 + crop[1], place % 3);
        let inside = (0..8).contains(&y) && (0..7).contains(&x);
        let expected = if inside { full[(y * 7 + x) as usize * 3 + channel] } else { 7.0 };
        assert_eq!(value, expected);
    }
}

#[test]
fn options_that_no_placement_can_say_are_named() {
    let new = ImageDataGenerator::new;
    let placeable = new().width_shift_range(0.1).random_crop(1).cutout(2).alternating_flip(true).rescale(0.5);
    let placeable = placeable.interpolation_order(0);
    assert_eq!(placeable.clone().build([4, 4, 3]).unwrap().unplaceable(), None);
    for (options, option) in [
        (placeable.clone().rotation_range(1.0), "rotation_range"),
        (new().mixup(0.2), "mixup"),
        (new().samplewise_center(true), "samplewise_center"),
    ] {
        let pipeline = options.build([4, 4, 3]).unwrap();
        assert_eq!(pipeline.unplaceable(), Some(option));
        assert_eq!(pipeline.places(&Draws::default()).err(), Some(Error::NoPlacement { option }));
    }
}

#[test]
fn nothing_is_drawn_where_nothing_is_asked_for() {
    let pipeline = ImageDataGenerator::new().build([4, 4, 3]).unwrap();
    assert!((0..100).all(|sample| pipeline.draw(1, 1, sample) == Draws::default()));
}

#[test]
fn cutout_blanks_a_clipped_square_after_standardization() {
    let pipeline = ImageDataGenerator::new().mean(Mean::PerChannel(vec![1.0])).build([4, 4, 1]).unwrap();
    let blanked = |row, column, side| -> Vec<usize> {
        let draws = Draws { cutout: Some(Cutout { row, column, side }), ..Draws::default() };
        let out = apply(&pipeline, &draws, &[9; 16]);
        assert!(out.iter().all(|value| [0.0, 8.0].contains(value)));
        (0..16).filter(|&place| out[place] == 0.0).collect()
    };
    assert_eq!(blanked(1, 2, 1), [6]);
    assert_eq!(blanked(1, 2, 2), [1, 2, 5, 6]);
    assert_eq!(blanked(0, 0, 3), [0, 1, 4, 5]);
    assert_eq!(blanked(3, 3, 3), [10, 11, 14, 15]);
    // Draws made by hand may say anything.
    assert_eq!(blanked(1, 1, usize::MAX).len(), 16);
    assert_eq!(blanked(usize::MAX, 1, 3), [0; 0]);
}

#[test]
fn standardization_rescales_and_then_subtracts() {
    let options = ImageDataGenerator::new().rescale(0.5).mean(Mean::PerChannel(vec![1.0, 2.0]));
    assert_eq!(
        apply(&options.build([1, 2, 2]).unwrap(), &Draws::default(), &[2, 4, 6, 8]),
        [0.0, 0.0, 2.0, 2.0]
    );
    let per_pixel = Mean::PerPixel { shape: [1, 2, 1], values: vec![1.0, 5.0] };
    let flip = Draws { horizontal_flip: true, ..Draws::default() };
    let after = ImageDataGenerator::new().mean(per_pixel.clone()).build([1, 2, 1]).unwrap();
    assert_eq!(apply(&after, &flip, &[10, 20]), [19.0, 5.0]);
    let first = ImageDataGenerator::new().subtract_mean_first(per_pixel).build([1, 2, 1]).unwrap();
    assert_eq!(apply(&first, &flip, &[10, 20]), [15.0, 9.0]);
    // As in Keras, a factor of 0 is no rescaling.
    assert_eq!(apply(&ImageDataGenerator::new().rescale(0.0).build([1, 1, 1]).unwrap(), &flip, &[9]), [9.0]);
}

#[test]
fn fit_counts_what_was_subtracted_first() {
    let images = Array4::from_shape_fn((3, 2, 2, 2), |(n, y, x, c)| (n * 40 + y * 20 + x * 10 + c * 3) as u8);
    let first = Mean::per_pixel(images.view()).unwrap();
    let options = ImageDataGenerator::new().featurewise_center(true).rescale(0.5);
    let Some(Mean::PerChannel(mean)) =
        options.clone().subtract_mean_first(first).fit(images.view()).unwrap().mean
    else {
        panic!("no mean per channel");
    };
    assert!(mean.iter().all(|value| value.abs() < 1e-5), "{mean:?}");
    assert!(options.fit(images.slice(s![..0, .., .., ..])).is_err());
    let off = ImageDataGenerator::new();
    assert_eq!(off.clone().fit(images.view()).unwrap(), off);
}

#[test]
fn options_that_make_no_sense_are_named() {
    let new = ImageDataGenerator::new;
    let bad = [
        (new().width_shift_range(f64::NAN), "width_shift_range"),
        (new().width_shift_range(-0.1), "width_shift_range"),
        (new().width_shift_range(-3), "width_shift_range"),
        (new().width_shift_range(ShiftRange::Int(i64::MAX)), "width_shift_range"),
        (new().height_shift_range(f64::INFINITY), "height_shift_range"),
        (new().height_shift_range([0.5, f64::NAN]), "height_shift_range"),
        (new().cval(f32::NAN), "cval"),
        (new().rescale(f32::INFINITY), "rescale"),
        (new().random_crop(4), "random_crop"),
        (new().random_crop(usize::MAX), "random_crop"),
        (new().cutout(5), "cutout"),
    ];
    for (options, name) in bad {
        let error = options.build([6, 4, 3]).unwrap_err();
        assert!(matches!(error, Error::Option { option, .. } if option == name), "{error}");
        assert!(error.to_string().starts_with(&format!("`{name}` is ")), "{error}");
    }
    let fits = new().random_crop(3).cutout(4).width_shift_range([-2, 0]).height_shift_range(1e300);
    let pipeline = fits.build([6, 4, 3]).unwrap();
    for sample in 0..50 {
        let out = apply(&pipeline, &pipeline.draw(0, 0, sample), &[200; 72]);
        assert!(out.iter().all(|&value| value == 200.0 || value == 0.0));
    }
}

#[test]
fn shapes_and_means_must_fit() {
    let new = ImageDataGenerator::new;
    for shape in [[0, 4, 3], [4, 0, 3], [4, 4, 0]] {
        assert_eq!(new().build(shape), Err(Error::EmptyImage { shape }));
    }
    assert_eq!(
        new().featurewise_center(true).build([4, 4, 3]),
        Err(Error::NotFitted { option: "featurewise_center" })
    );
    let mismatched = [
        Mean::PerChannel(vec![0.0; 4]),
        Mean::PerPixel { shape: [4, 4, 1], values: vec![0.0; 16] },
        Mean::PerPixel { shape: [4, 4, 3], values: vec![0.0; 16] },
    ];
    for mean in mismatched {
        for options in [new().mean(mean.clone()), new().subtract_mean_first(mean)] {
            let error = options.build([4, 4, 3]).unwrap_err();
            assert!(matches!(error, Error::Shape { .. }), "{error}");
        }
    }
    assert!(new().mean(Mean::PerChannel(vec![f32::NAN])).build([1, 1, 1]).is_err());
    let pipeline = new().build([2, 2, 1]).unwrap();
    let mut scratch = Scratch::default();
    assert!(pipeline.apply(&Draws::default(), &[0; 5], &mut [0.0; 4], &mut scratch).is_err());
    assert!(pipeline.apply(&Draws::default(), &[0; 4], &mut [0.0; 3], &mut scratch).is_err());
    let nowhere = Draws { width_shift: f64::NAN, ..Draws::default() };
    assert!(pipeline.apply(&nowhere, &[0; 4], &mut [0.0; 4], &mut scratch).is_err());
}

#[test]
fn a_preview_shows_the_image_and_then_its_epochs() {
    let images = Array4::from_shape_fn((9, 4, 3, 1), |(n, y, x, _)| (n * 25 + y * 4 + x) as u8);
    let options = ImageDataGenerator::new().horizontal_flip(true).rescale(1.0 / 255.0);
    let pipeline = options.build([4, 3, 1]).unwrap();
    let samples = Samples::new(images.clone(), vec![0; 9]).unwrap();
    let grid = pipeline.preview(&samples, &[7, 8], 6, 5).unwrap();
    assert_eq!(grid.dim(), (14, 32, 3));
    assert!(grid.slice(s![..2, .., ..]).iter().all(|&value| value == 255));
    for (row, sample) in [(0, 7), (1, 8)] {
        for column in 0..6 {
            let cell = grid.slice(s![2 + row * 6..6 + row * 6, 2 + column * 5..5 + column * 5, ..]);
            let flipped = column > 0 && pipeline.draw(5, column as u64 - 1, sample).horizontal_flip;
            for ((y, x, _), &value) in cell.indexed_iter() {
                assert_eq!(value, images[[sample as usize, y, if flipped { 2 - x } else { x }, 0]]);
            }
        }
    }
    assert!(pipeline.preview(&samples, &[9], 6, 5).is_err());
    assert!(pipeline.preview(&samples, &[7, 8], 0, 5).is_err());
    let lower = Samples::new(images.slice_move(s![.., ..3, .., ..]), vec![0; 9]).unwrap();
    assert!(pipeline.preview(&lower, &[7, 8], 1, 5).is_err());
}

#[cfg(feature = "serde")]
#[test]
fn options_go_through_json() {
    let options = ImageDataGenerator::new().width_shift_range(0.1).height_shift_range([1, 2]).rescale(0.5);
    let options = options.fill_mode(FillMode::Reflect).mean(Mean::PerChannel(vec![0.5]));
    let text = serde_json::to_string(&options).unwrap();
    assert_eq!(serde_json::from_str::<ImageDataGenerator>(&text).unwrap(), options);
    let short: ImageDataGenerator = serde_json::from_str(r#"{"width_shift_range": 4}"#).unwrap();
    assert_eq!(short, ImageDataGenerator::new().width_shift_range(4));
    assert!(serde_json::from_str::<ImageDataGenerator>(r#"{"width_shift": 4}"#).is_err());
}
