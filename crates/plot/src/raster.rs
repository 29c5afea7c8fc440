//! Drawing instructions as pixels.
//!
//! A pixel's share of a shape follows from the distance between its centre and the shape's edge. That makes
//! smooth edges for shapes wider than a pixel.

use crate::mark::{Anchor, Mark, Shape, arrowhead};
use ab_glyph::{Font, FontRef, PxScale, ScaleFont, point};
use std::io;

static DEJAVU_SANS: &[u8] = include_bytes!("../assets/DejaVuSans-subset.ttf");

/// The marks on white, as a PNG file.
pub(crate) fn png([width, height]: [f64; 2], marks: &[Mark]) -> io::Result<Vec<u8>> {
    let font = FontRef::try_from_slice(DEJAVU_SANS).map_err(io::Error::other)?;
    let (width, height) = (width as usize, height as usize);
    let pixels = vec![255; 3 * width * height];
    let mut canvas = Canvas { width, height, pixels, cover: vec![0.0; width * height] };
    marks.iter().for_each(|mark| canvas.draw(mark, &font));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&canvas.pixels)?;
    Ok(file)
}

struct Canvas {
    width: usize,
    height: usize,
    /// Red, green and blue of each pixel.
    pixels: Vec<u8>,
    /// The share of each pixel that the current mark covers; 0 between marks.
    cover: Vec<f32>,
}

impl Canvas {
    fn draw(&mut self, mark: &Mark, font: &FontRef<'_>) {
        let colour = mark.ink.colour();
        match &mark.shape {
            Shape::Line { points, width, dash } => {
                let reach = width / 2.0;
                // The parts of a line overlap: each pixel takes its share of the nearest one.
                for part in parts(points, *dash) {
                    self.cover(around(&part, reach), |at| to_segment(at, part) - reach);
                }
                self.paint(around(points, reach), colour);
            }
            Shape::Circle { centre, radius, ring, .. } => {
                let area = around(&[*centre], radius + ring.unwrap_or(0.0));
                self.cover(area, |at| {
                    let outside = to_segment(at, [*centre; 2]) - radius;
                    ring.map_or(outside, |width| outside.abs() - width / 2.0)
                });
                self.paint(area, colour);
            }
            Shape::Arrowhead { centre, radius, .. } => {
                let corners = arrowhead(*centre, *radius);
                let area = around(&corners, 0.0);
                self.cover(area, |at| {
                    (0..3).map(|k| beyond(at, corners[k], corners[(k + 1) % 3])).fold(f64::MIN, f64::max)
                });
                self.paint(area, colour);
            }
            Shape::Text { at, anchor, size, text } => self.text(font, *at, *anchor, *size, text, colour),
        }
    }

    fn text(&mut self, font: &FontRef<'_>, at: [f64; 2], anchor: Anchor, size: f64, text: &str, colour: u32) {
        // The font's scale is its height from descent to ascent, while a text's size is that of an em.
        let em = font.units_per_em().unwrap_or(font.height_unscaled());
        let font = font.as_scaled(PxScale::from(size as f32 * font.height_unscaled() / em));
        let width: f32 = text.chars().map(|c| font.h_advance(font.glyph_id(c))).sum();
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let [mut x, y] = [at[0] as f32 - before, at[1] as f32];
        for c in text.chars() {
            let id = font.glyph_id(c);
            let glyph = id.with_scale_and_position(font.scale(), point(x, y));
            x += font.h_advance(id);
            let Some(outline) = font.outline_glyph(glyph) else { continue };
            let bounds = outline.px_bounds();
            outline.draw(|dx, dy, share| {
                let [x, y] = [bounds.min.x as i64 + i64::from(dx), bounds.min.y as i64 + i64::from(dy)];
                if let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) {
                    self.blend([x, y], share, colour);
                }
            });
        }
    }

    /// Covers pixels by the distance of their centres from an edge, which is negative inside.
    fn cover(&mut self, area: [[f64; 2]; 2], distance: impl Fn([f64; 2]) -> f64) {
        for [x, y] in self.within(area) {
            let share = 0.5 - distance([x as f64 + 0.5, y as f64 + 0.5]);
            let cover = &mut self.cover[y * self.width + x];
            *cover = cover.max(share.clamp(0.0, 1.0) as f32);
        }
    }

    /// Gives the covered pixels a colour, and leaves them uncovered.
    fn paint(&mut self, area: [[f64; 2]; 2], colour: u32) {
        for [x, y] in self.within(area) {
            let share = std::mem::take(&mut self.cover[y * self.width + x]);
            self.blend([x, y], share, colour);
        }
    }

    fn blend(&mut self, [x, y]: [usize; 2], share: f32, colour: u32) {
        if x < self.width && y < self.height && share > 0.0 {
            let pixel = &mut self.pixels[3 * (y * self.width + x)..][..3];
            for (value, goal) in pixel.iter_mut().zip(&colour.to_be_bytes()[1..]) {
                *value = (f32::from(*value) * (1.0 - share) + f32::from(*goal) * share).round() as u8;
            }
        }
    }

    /// The pixels of a rectangle between two corners, as far as there are any.
    fn within(&self, [low, high]: [[f64; 2]; 2]) -> impl Iterator<Item = [usize; 2]> + use<> {
        // Numbers below 0 become 0.
        let columns = low[0] as usize..(high[0].ceil() as usize).min(self.width);
        let rows = low[1] as usize..(high[1].ceil() as usize).min(self.height);
        rows.flat_map(move |y| columns.clone().map(move |x| [x, y]))
    }
}

/// The corners of a rectangle around points, with room for a smooth edge.
fn around(points: &[[f64; 2]], reach: f64) -> [[f64; 2]; 2] {
    let end = |of: fn(f64, f64) -> f64, start: f64, more: f64| {
        points.iter().fold([start; 2], |end, at| [of(end[0], at[0]), of(end[1], at[1])]).map(|x| x + more)
    };
    [end(f64::min, f64::MAX, -reach - 1.0), end(f64::max, f64::MIN, reach + 1.0)]
}

/// The segments of a line, or those of its dashes.
fn parts(points: &[[f64; 2]], dash: Option<[f64; 2]>) -> Vec<[[f64; 2]; 2]> {
    let mut parts = Vec::new();
    let mut begin = 0.0;
    for pair in points.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        let length = (to[0] - from[0]).hypot(to[1] - from[1]);
        let Some([on, off]) = dash.filter(|_| length > 0.0) else {
            parts.push([from, to]);
            continue;
        };
        let end = begin + length;
        let period = on + off;
        for k in (begin / period) as usize..=(end / period) as usize {
            let start = k as f64 * period;
            let cut = [start.max(begin), (start + on).min(end)];
            if cut[0] < cut[1] {
                let at =
                    |s: f64| [0, 1].map(|axis| from[axis] + (to[axis] - from[axis]) * (s - begin) / length);
                parts.push(cut.map(at));
            }
        }
        begin = end;
    }
    parts
}

/// The distance from a point to a segment, or to a point given twice.
fn to_segment(at: [f64; 2], [from, to]: [[f64; 2]; 2]) -> f64 {
    let (along, off) = ([to[0] - from[0], to[1] - from[1]], [at[0] - from[0], at[1] - from[1]]);
    let square = along[0] * along[0] + along[1] * along[1];
    let share =
        if square > 0.0 { ((off[0] * along[0] + off[1] * along[1]) / square).clamp(0.0, 1.0) } else { 0.0 };
    (off[0] - share * along[0]).hypot(off[1] - share * along[1])
}

/// The distance of a point on the left of a directed line, negative on its right. On screens y points down.
fn beyond(at: [f64; 2], from: [f64; 2], to: [f64; 2]) -> f64 {
    let along = [to[0] - from[0], to[1] - from[1]];
    (along[1] * (at[0] - from[0]) - along[0] * (at[1] - from[1])) / along[0].hypot(along[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_go_on_around_corners() {
        let line = [[0.0, 0.0], [6.0, 0.0], [6.0, 4.0]];
        assert_eq!(parts(&line, None).len(), 2);
        let dashes = [[[0.0, 0.0], [2.0, 0.0]], [[5.0, 0.0], [6.0, 0.0]], [[6.0, 0.0], [6.0, 1.0]]];
        assert_eq!(parts(&line, Some([2.0, 3.0])), dashes);
    }

    #[test]
    fn distances_are_negative_inside() {
        assert_eq!(to_segment([3.0, 4.0], [[0.0, 0.0], [0.0, 0.0]]), 5.0);
        assert_eq!(to_segment([3.0, 4.0], [[0.0, 0.0], [9.0, 0.0]]), 4.0);
        let [tip, right, _] = arrowhead([0.0, 0.0], 2.0);
        assert!(beyond([0.0, 0.0], tip, right) < 0.0 && beyond([5.0, 0.0], tip, right) > 0.0);
    }
}
