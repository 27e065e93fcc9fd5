"""The data of the experiments: found on this machine, checked, and never downloaded."""

from splinecam_paper.data.images import Images, load_images
from splinecam_paper.data.meshes import Mesh, load_mesh, signed_distance, signed_distance_image
from splinecam_paper.data.photos import Photo, load_photo

__all__ = [
    "Images",
    "Mesh",
    "Photo",
    "load_images",
    "load_mesh",
    "load_photo",
    "signed_distance",
    "signed_distance_image",
]
