//! Turning the hue of a pixel: Pillow's conversion to HSV and back, rounding included.

/// Turns the hue by `by` 255ths of a turn, as torchvision's `adjust_hue` does with a picture of Pillow.
pub(crate) fn turn(image: &mut [u8], by: u8) {
    for pixel in image.as_chunks_mut::<3>().0 {
        let [hue, saturation, value] = hsv(*pixel);
        *pixel = rgb([hue.wrapping_add(by), saturation, value]);
    }
}

/// Single and double precision are mixed as in Pillow's `rgb2hsv_row`.
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let [rc, gc, bc] = [r, g, b].map(|value| f32::from(most - value) / range);
    let sixths = if r == most {
        bc - gc
    } else if g == most {
        (2.0 + f64::from(rc) - f64::from(bc)) as f32
    } else {
        (4.0 + f64::from(gc) - f64::from(rc)) as f32
    };
    let hue = ((f64::from(sixths) / 6.0 + 1.0) % 1.0) as f32;
    let saturation = range / f32::from(most);
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

/// Pillow's `hsv2rgb_row`.
fn rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sixths = f64::from(hue) * 6.0 / 255.0;
    let rest = (sixths - sixths.floor()) as f32;
    let full = (f64::from(saturation) / 255.0) as f32;
    let (v, rest64, full64) = (f64::from(value), f64::from(rest), f64::from(full));
    let [p, q, t] = [1.0 - full64, 1.0 - f64::from(full * rest), 1.0 - full64 * (1.0 - rest64)]
        .map(|x| (v * x).round() as u8);
    match sixths as u8 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
