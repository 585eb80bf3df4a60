"""A new infra repository: the files a team starts with, as text. `arena init` writes them."""
