mod files;
mod objects;
mod rig;
mod trouble;
