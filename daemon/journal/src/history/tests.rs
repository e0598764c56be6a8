mod damage;
mod failures;
mod files;
mod hostile;
mod readers;
mod rig;
mod round_trip;
mod torn;
