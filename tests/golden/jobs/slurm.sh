#!/usr/bin/env bash

#SBATCH -J dqlab
#SBATCH -e DIRECTORY/dqlab-%J.err
#SBATCH -o DIRECTORY/dqlab-%J.out
#SBATCH -p short
#SBATCH -A physics
#SBATCH -n 1
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH -t 01:30:00
#SBATCH -N 1
#SBATCH --no-requeue
trap : TERM
export DQLAB_JOB_DEADLINE=$(( $(date +%s) + 5400 ))
export DQLAB_JOB_DRAIN=180
export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False
module load python
python3 -m distributed.cli.dask_worker tls://SCHEDULER:PORT --name NAME --nthreads 4 --memory-limit 7.45GiB --nanny --death-timeout 300 --local-directory ${TMPDIR:-/tmp} --preload dqlab.preload --no-dashboard --resources dq-queue=1 --interface ib0 --protocol tls:// --tls-ca-file CA --tls-cert CERT --tls-key KEY
