use super::problem::Problem;
use core::ops::Range;

/// How a [`Problem`] is cut into tasks, each of which is one *segment*, a box of output pixels, and one *group*, some panels of
/// columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Images, rows and pixels of a segment, and segments along each.
    pub size: [usize; 3],
    count: [usize; 3],
    /// Panels in all and in a group, and groups.
    pub panels: usize,
    group: usize,
    groups: usize,
}

/// A box of output pixels.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub images: Range<usize>,
    pub rows: Range<usize>,
    pub pixels: Range<usize>,
}

impl Cut {
    /// Segments of a size, and as many groups of panels as make `least` tasks, if there are so many panels.
    pub fn new(p: &Problem, size: [usize; 3], panels: usize, least: usize) -> Cut {
        let count = [
            p.images.div_ceil(size[0].max(1)),
            p.y.outputs.div_ceil(size[1].max(1)),
            p.x.outputs.div_ceil(size[2].max(1)),
        ];
        let segments: usize = count.iter().product();
        let group = panels.div_ceil(least.div_ceil(segments.max(1)));
        Cut { size, count, panels, group, groups: panels.div_ceil(group) }
    }

    pub fn segments(&self) -> usize {
        self.count.iter().product()
    }

    pub fn tasks(&self) -> usize {
        self.segments() * self.groups
    }

    /// The segment and the panels of a task.
    pub fn task(&self, p: &Problem, task: usize) -> (Segment, Range<usize>) {
        let (index, group) = (task / self.groups, task % self.groups);
        let [_, rows, columns] = self.count;
        let part = |at: usize, size: usize, all: usize| at * size..((at + 1) * size).min(all);
        let segment = Segment {
            images: part(index / (rows * columns), self.size[0], p.images),
            rows: part(index / columns % rows, self.size[1], p.y.outputs),
            pixels: part(index % columns, self.size[2], p.x.outputs),
        };
        (segment, part(group, self.group, self.panels))
    }
}
