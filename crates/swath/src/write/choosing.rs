//! A writer whose predictor is not chosen yet: rows and blocks wait, and are encoded once it is.

use std::{ops::Range, sync::Arc};

use swath_codec::pre::Arrangement;
use swath_raster::memory;
use swath_tiff::structure::Predictor;

use super::{
    blocks::waiting_writers,
    canvas::{CellPosition, split},
    device::samples::DeviceSamples,
    input::Pushed,
    memory::Memory,
    options::WriteOptions,
    plan::Plan,
    predictor::{ChoiceState, ConstantRows, PORTION_LEN, Undecided},
    row_store::RowStore,
    spilled_rows::SpilledRows,
    writer::{FromBlocks, Side, Writer},
};
use crate::{device::Mode, error::Error, metadata::Metadata};

/// What became of rows that were shown to the choice of the predictor.
enum ChoiceOutcome {
    /// The choice keeps all of them until it is made.
    Waits,
    /// The choice is made. The first `kept` of these rows are taken, with all earlier ones.
    Decided { kept: u32 },
    /// The choice is made, and none of these rows are taken.
    DecidedAtOnce,
}

impl Writer {
    /// Takes rows; those that come before the predictor is chosen wait.
    pub(super) fn choose_and_take(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        match self.look_at(pushed)? {
            ChoiceOutcome::Waits => Ok(()),
            ChoiceOutcome::Decided { kept } => self.take_rows(&pushed.part(kept..pushed.rows, self.shape)?),
            ChoiceOutcome::DecidedAtOnce => self.take_rows(pushed),
        }
    }

    /// Shows rows to the choice of the predictor. When it is made, plans the file with it and takes the rows that waited.
    fn look_at(&mut self, pushed: &Pushed<'_>) -> Result<ChoiceOutcome, Error> {
        let Some(mut undecided) = self.choice.take_open() else { return Ok(ChoiceOutcome::DecidedAtOnce) };
        let is_first = undecided.choice.seen() == 0;
        let kept = undecided.choice.look_at(pushed)?;
        let Some(predictor) = undecided.choice.chosen() else {
            self.choice = ChoiceState::Open(undecided);
            return Ok(ChoiceOutcome::Waits);
        };
        let Undecided { choice, metadata } = *undecided;
        if predictor != self.plan.levels.main.layout.predictor {
            self.begin_again(&metadata, predictor)?;
        }
        self.choice = ChoiceState::Made { by_samples: choice.compared() };
        if is_first {
            return Ok(ChoiceOutcome::DecidedAtOnce);
        }
        // Rows of one pixel value came first and were only counted; the rows after them were kept.
        let (constant, kept_rows) = choice.into_kept();
        let memory = self.host.memory;
        if self.is_on_device() || memory.has_room_for(kept_rows.allocated_len(), &self.plan, &self.options) {
            self.take_constant(constant)?;
            self.take_kept(kept_rows)?;
        } else {
            let spilled = SpilledRows::new(kept_rows, self.sink.0.spill())?;
            self.take_constant(constant)?;
            spilled.take(|rows| self.take_rows(rows))?;
        }
        Ok(ChoiceOutcome::Decided { kept })
    }

    /// Takes the constant rows at the top, some at a time.
    fn take_constant(&mut self, constant: Option<ConstantRows>) -> Result<(), Error> {
        let Some(constant) = constant else { return Ok(()) };
        let row_len = self.plan.levels.main.row_len().max(1);
        let at_once = (PORTION_LEN / row_len).clamp(1, constant.rows.max(1) as usize) as u32;
        let (mut samples, mut mask) = (Vec::new(), Vec::new());
        let mut left = constant.rows;
        while left > 0 {
            let count = left.min(at_once);
            constant.fill(count, self.shape.width, &mut samples, &mut mask)?;
            let rows = Pushed::new(&constant.as_rows(&samples, &mask), self.shape, self.is_masked())?;
            self.take_rows(&rows)?;
            left -= count;
        }
        Ok(())
    }

    /// Takes the rows that waited in memory.
    fn take_kept(&mut self, mut kept_rows: RowStore) -> Result<(), Error> {
        let rows = kept_rows.count;
        let (planes, _) = kept_rows.split();
        self.take_rows(&Pushed { planes, arrangement: Arrangement::Planes, rows })
    }

    /// Keeps complete cells of the image until the predictor is chosen. Shows the choice the next rows as soon as all their cells are
    /// complete, and works on the cells once it is made.
    pub(super) fn choose_from_cells(
        &mut self,
        blocks: &mut FromBlocks,
        complete: Vec<CellPosition>,
    ) -> Result<(), Error> {
        blocks.undecided.extend(complete);
        self.make_room(blocks)?;
        while let Some(mut undecided) = self.choice.take_open() {
            let first = undecided.choice.seen();
            let rows = first..self.shape.height.min(first + undecided.choice.rows_at_once().max(1));
            if !blocks.canvases.main.has_rows(&rows) {
                self.choice = ChoiceState::Open(undecided);
                return Ok(());
            }
            let bytes = self.rows_of_cells(blocks, &rows)?;
            let pixels = u64::from(self.shape.width) * u64::from(rows.end - rows.start);
            let planes = split(&bytes, blocks.canvases.main.planes(), pixels)?;
            let (arrangement, rows) = (Arrangement::Planes, rows.end - rows.start);
            // NaN was replaced when the pixels were copied to the cells. Rows need not wait, because the cells hold them.
            let pushed = Pushed { planes, arrangement, rows };
            if undecided.choice.skip_constant(&pushed)? == 0 {
                undecided.choice.look_at_samples(&pushed)?;
            }
            match undecided.choice.chosen() {
                None => self.choice = ChoiceState::Open(undecided),
                Some(predictor) => {
                    self.choice = ChoiceState::Made { by_samples: undecided.choice.compared() };
                    self.plan_blocks_again(blocks, &undecided.metadata, predictor)?;
                }
            }
        }
        let cells = std::mem::take(&mut blocks.undecided);
        self.work(blocks, cells.into_iter().map(|at| (0, at)).collect())
    }

    /// Copies rows of the image from their cells: plane after plane.
    fn rows_of_cells(&self, blocks: &mut FromBlocks, rows: &Range<u32>) -> Result<Vec<u8>, Error> {
        let pixel: usize = blocks.canvases.main.planes().iter().sum();
        let mut bytes = memory::zeroed((rows.end - rows.start) as usize * self.shape.width as usize * pixel)?;
        for at in blocks.canvases.main.cells_of_rows(rows) {
            blocks.canvases.main.load(at, &blocks.spill)?;
            blocks.canvases.main.copy_cell_rows(at, rows, &mut bytes)?;
            self.make_room(blocks)?;
        }
        Ok(bytes)
    }

    /// Plans a file of blocks with the chosen predictor; nothing was encoded yet.
    fn plan_blocks_again(
        &mut self,
        blocks: &mut FromBlocks,
        metadata: &Metadata,
        predictor: Predictor,
    ) -> Result<(), Error> {
        blocks.budget = blocks.budget_afterwards;
        self.options = self.options.clone().with_predictor(predictor);
        let plan = Plan::new(self.shape, metadata, &self.options, blocks.gpu.is_some())?;
        self.level_writers = waiting_writers(&plan, &blocks.waiting);
        self.sink.0.expect(plan.reach(&self.level_writers));
        self.plan = Arc::new(plan);
        Ok(())
    }

    /// Threads for which the memory is enough where the CPU works, even if a GPU encodes.
    pub(super) fn threads_on_host(&self) -> usize {
        match self.device() {
            Some(_) => Memory::fit(&self.plan, &self.options).map_or(1, |memory| memory.threads),
            None => self.host.memory.threads,
        }
    }

    /// Plans the file with another predictor; nothing was encoded yet.
    fn begin_again(&mut self, metadata: &Metadata, predictor: Predictor) -> Result<(), Error> {
        let mut options = self.options.clone();
        if options.device.mode == Some(Mode::Auto) && !self.is_on_device() {
            options.device.mode = Some(Mode::Cpu);
        }
        self.begin_with(metadata, &options, Some(predictor))
    }

    /// Leaves the GPU to the CPU after a failure, where the mode allows it; nothing was encoded yet.
    fn leave_gpu(&mut self, failure: Error) -> Result<(), Error> {
        let mut options = self.options.clone();
        let may_leave = options.device.mode == Some(Mode::Auto) && failure.is_about_device();
        if !may_leave {
            return Err(failure);
        }
        let Some(mut undecided) = self.choice.take_open() else { return Err(failure) };
        options.device.mode = Some(Mode::Cpu);
        self.begin_with(&undecided.metadata, &options, None)?;
        undecided.choice.set_threads(self.host.memory.threads);
        self.choice = ChoiceState::Open(undecided);
        self.report.notices.push(format!("the CPU writes: {failure}"));
        Ok(())
    }

    /// Begins the file again. The options still ask for a choice, whose rows stay in memory until the writer has taken them.
    fn begin_with(
        &mut self,
        metadata: &Metadata,
        options: &WriteOptions,
        chosen: Option<Predictor>,
    ) -> Result<(), Error> {
        let notices = std::mem::take(&mut self.report.notices);
        // What the old plan holds on the GPU is free before the new one asks for it.
        self.side = Side::Host;
        *self = Self::to_shared_sink(self.sink.clone(), self.shape, metadata, options, chosen)?;
        let new = notices.into_iter().filter(|notice| !self.report.notices.contains(notice)).collect::<Vec<_>>();
        self.report.notices.extend(new);
        Ok(())
    }

    /// Takes rows on a GPU; the choice of the predictor sees the first of them on the host.
    pub(super) fn choose_and_take_device(&mut self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        let count = samples.count();
        let mut shown = 0;
        while let Some(undecided) = self.choice.open()
            && shown < count
        {
            let is_first = shown == 0;
            let until = shown + undecided.choice.rows_at_once().min(count - shown);
            let fetched = match samples.fetch(&self.options.device, shown..until) {
                Ok(fetched) => fetched,
                Err(failure) => {
                    let device = self.options.device.clone();
                    self.leave_gpu(failure)?;
                    samples.fetch(&device, shown..until)?
                }
            };
            let pushed = Pushed::new(&fetched.rows(), self.shape, samples.mask.is_some())?;
            match self.look_at(&pushed)? {
                ChoiceOutcome::Waits => shown = until,
                ChoiceOutcome::Decided { kept } => return self.take_device(samples, shown + kept..count),
                ChoiceOutcome::DecidedAtOnce if is_first => break,
                ChoiceOutcome::DecidedAtOnce => return Err(Error::internal("the choice of the predictor lost rows")),
            }
        }
        if shown == count { Ok(()) } else { self.take_device(samples, 0..count) }
    }
}
