#!/usr/bin/env bash

#PBS -N dqlab
#PBS -q short
#PBS -A physics
#PBS -l select=1:ncpus=4:mem=7630MB
#PBS -l walltime=01:30:00
#PBS -e DIRECTORY/
#PBS -o DIRECTORY/
#PBS -r n
trap : TERM
export DQLAB_JOB_DEADLINE=$(( $(date +%s) + 5400 ))
export DQLAB_JOB_DRAIN=180
export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False
module load python
python3 -m distributed.cli.dask_worker tls://SCHEDULER:PORT --name NAME --nthreads 4 --memory-limit 7.45GiB --nanny --death-timeout 300 --local-directory ${TMPDIR:-/tmp} --preload dqlab.preload --no-dashboard --resources dq-queue=1 --interface ib0 --protocol tls:// --tls-ca-file CA --tls-cert CERT --tls-key KEY
