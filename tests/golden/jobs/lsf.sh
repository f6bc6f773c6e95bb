#!/usr/bin/env bash

#BSUB -J dqlab
#BSUB -e DIRECTORY/NAME-%J.err
#BSUB -o DIRECTORY/NAME-%J.out
#BSUB -q short
#BSUB -P "physics"
#BSUB -n 4
#BSUB -R "span[hosts=1]"
#BSUB -M 8000000
#BSUB -W 01:30
#BSUB -rn
trap : TERM
export DQLAB_JOB_DEADLINE=$(( $(date +%s) + 5400 ))
export DQLAB_JOB_DRAIN=180
export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False
module load python
python3 -m distributed.cli.dask_worker tls://SCHEDULER:PORT --name NAME --nthreads 4 --memory-limit 7.45GiB --nanny --death-timeout 300 --local-directory ${TMPDIR:-/tmp} --preload dqlab.preload --no-dashboard --resources dq-queue=1 --interface ib0 --protocol tls:// --tls-ca-file CA --tls-cert CERT --tls-key KEY
