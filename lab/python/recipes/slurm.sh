#!/bin/bash
# A sweep as a job array of Slurm: a task for each part.
#
#   pageferry sweep pipe-sizes --machine xeon-mp,today --kernel original,sf_buf \
#       --vary chunk_bytes=4K..256K:1K --plan parts --parts 16
#   sbatch --array=1-16 slurm.sh parts
#   pageferry sweep collect parts --out sweep          # when the array is through
#
# The folder of parts has to be on a file system that all nodes see, and `pageferry` on PATH there, of one version. A
# task that is ended early leaves nothing; `collect` names the parts that are not there: sbatch --array=2,5 slurm.sh
# parts. A run is single-threaded, so more CPUs than a part has runs are of no use.
#SBATCH --job-name=pageferry
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --time=01:00:00
#SBATCH --output=pageferry-%A-%a.log
set -euo pipefail
parts=${1:?usage: sbatch --array=1-N slurm.sh PARTS}
exec srun pageferry sweep run "$parts/part-$SLURM_ARRAY_TASK_ID.toml" --jobs "$SLURM_CPUS_PER_TASK"
